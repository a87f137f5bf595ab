//! The chassis of every service: start-up and drain, authentication, errors, deadlines, calls to other services, batching
//! and background workers. It knows no store and no domain noun.

pub mod auth;
pub mod backoff;
pub mod batcher;
pub mod breaker;
pub mod client;
pub mod config;
pub mod contract;
pub mod deadline;
pub mod error;
pub mod health;
pub mod server;
pub mod tasks;
pub mod telemetry;
pub mod tls;
pub mod worker;

mod allocator;
mod coalescing_writer;
mod run;

pub use run::{BuildError, Exit, run, run_in};
