//! Payment through gRPC, on a real Postgres and a real Redis Cluster, with the sandbox provider over real HTTP.

// Says to clippy that the helpers here are tests too, and may fail by panicking.
#![cfg(test)]

mod create_payment;
mod handle_webhook;
mod pay;
mod provider_trouble;
mod refund_payment;
mod restart;
mod starts;
mod support;
