//! Clients of Postgres and the Redis Cluster, and the mechanisms built on both: leases and events between services.
//! Postgres is the source of truth; everything in Redis can be rebuilt from it.

pub mod due;
pub mod idempotency;
pub mod lease;
pub mod messaging;
pub mod migrate;
pub mod postgres;
pub mod redis;

mod stores;

pub use stores::{OpenError, Stores, StoresConfig};
