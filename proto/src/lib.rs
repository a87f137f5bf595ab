//! The contract's only Rust face: generated messages, clients and servers, and the descriptors they came from.

pub mod codec;
pub mod convert;

/// Everything the contracts declare, options included, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// What an event between services carries. Implemented by the build for every message that has a topic in the contract.
pub trait EventPayload: prost::Message + Default {
    /// Name of the topic that carries it, e.g. `order.completed`.
    const TOPIC: &'static str;
    /// Full name of its message, e.g. `onsale.events.v1.OrderCompleted`: what `Envelope.payload_type` says.
    const TYPE: &'static str;
    /// The one service that writes it.
    const SOURCE: &'static str;
    /// The services that handle it: the only ones that can, and an event stays until each of them has.
    const LISTENERS: &'static [&'static str];
}

/// A topic of the contract: who tells whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: &'static str,
    /// The one service that writes it.
    pub source: &'static str,
    /// The services that handle it.
    pub listeners: &'static [&'static str],
}

impl Topic {
    /// The topic that carries `P`.
    #[must_use]
    pub const fn of<P: EventPayload>() -> Self {
        Self { name: P::TOPIC, source: P::SOURCE, listeners: P::LISTENERS }
    }
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
