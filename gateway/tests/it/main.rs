//! Tests of the gateway over real sockets and behind a real Envoy, in front of fake services that record each call.

// Marks the helpers as test code for clippy, so that they may panic.
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
