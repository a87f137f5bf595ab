//! The front door over real sockets and behind a real Envoy, with services that only write down what reaches them.

// Says to clippy that the helpers here are tests too, and may fail by panicking.
#![cfg(test)]

mod closed;
mod envoy;
mod errors;
mod fake;
mod identity;
mod raw;
mod rest;
mod sign_in;
mod silence;
mod streams;
mod support;
mod webhooks;
