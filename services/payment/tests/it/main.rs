//! Tests of Payment through gRPC, on a real Postgres and Redis Cluster, with the sandbox provider over HTTP.

// Lets clippy accept panics in helper functions too.
#![cfg(test)]

mod create_payment;
mod handle_webhook;
mod pay;
mod provider_trouble;
mod refund_payment;
mod restart;
mod starts;
mod support;
