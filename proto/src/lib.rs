//! The contract's only Rust face: generated messages, clients and servers, and the descriptors they came from.

/// Everything the contracts declare, options included, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What an event between services carries. Implemented by the build for every message that has a topic in the contract.
pub trait EventPayload: prost::Message + Default {
    /// Name of the topic that carries it, e.g. `order.completed`.
    const TOPIC: &'static str;
    /// Full name of its message, e.g. `onsale.events.v1.OrderCompleted`: what `Envelope.payload_type` says.
    const TYPE: &'static str;
}

include!(concat!(env!("OUT_DIR"), "/event_payloads.rs"));

pub use generated::onsale::*;

#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    unreachable_pub,
    reason = "generated from the contracts"
)]
mod generated {
    pub mod onsale {
        pub mod auth {
            pub mod v1 {
                tonic::include_proto!("onsale.auth.v1");
            }
        }
        pub mod claim {
            pub mod v1 {
                tonic::include_proto!("onsale.claim.v1");
            }
        }
        pub mod events {
            pub mod v1 {
                tonic::include_proto!("onsale.events.v1");
            }
        }
        pub mod inventory {
            pub mod v1 {
                tonic::include_proto!("onsale.inventory.v1");
            }
        }
        pub mod notification {
            pub mod v1 {
                tonic::include_proto!("onsale.notification.v1");
            }
        }
        pub mod payment {
            pub mod v1 {
                tonic::include_proto!("onsale.payment.v1");
            }
        }
        pub mod queue {
            pub mod v1 {
                tonic::include_proto!("onsale.queue.v1");
            }
        }
        pub mod ticketing {
            pub mod v1 {
                tonic::include_proto!("onsale.ticketing.v1");
            }
        }
        pub mod r#type {
            pub mod v1 {
                tonic::include_proto!("onsale.r#type.v1");
            }
        }
    }
}
