//! Rust interface of the contracts: generated messages, clients and servers, and their descriptors.

pub mod codec;
pub mod convert;

/// All contracts with their options, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Payload of an event between services. The build script implements it for every message with a topic in the contract.
pub trait EventPayload: prost::Message + Default {
    /// Name of the topic that carries the payload, e.g. `order.completed`.
    const TOPIC: &'static str;
    /// Full name of the message, e.g. `onsale.events.v1.OrderCompleted`, as in `Envelope.payload_type`.
    const TYPE: &'static str;
    /// Name of the only service that publishes it.
    const SOURCE: &'static str;
    /// Names of the services that handle it. An event is kept until each of them has handled it.
    const LISTENERS: &'static [&'static str];
}

/// A topic of the contract, with its source and its listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Name of the topic, e.g. `order.completed`.
    pub name: &'static str,
    /// Name of the only service that publishes it.
    pub source: &'static str,
    /// Names of the services that handle it.
    pub listeners: &'static [&'static str],
}

impl Topic {
    /// Returns the topic that carries `P`.
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
