//! Payment through gRPC, on a real Postgres and a real Redis Cluster, with the sandbox provider over real HTTP.

// Says to clippy that the helpers here are tests too, and may fail by panicking.
#![cfg(test)]

mod create;
mod mesh;
mod pay;
mod provider_trouble;
mod refund;
mod restart;
mod starts;
mod webhook;
mod world;
