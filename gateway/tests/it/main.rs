//! The front gateway over real sockets and behind a real Envoy, with services that only write down what reaches them.

// Says to clippy that the helpers here are tests too, and may fail by panicking.
#![cfg(test)]

mod envoy;
mod errors;
mod fake_services;
mod identity;
mod idle_connections;
mod internal_methods;
mod raw_http;
mod rest;
mod sign_in;
mod streams;
mod support;
mod webhooks;
