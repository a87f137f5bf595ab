//! The kit's tests over real sockets, in one binary.

// Marks the helper modules as tests for clippy, so that they may panic.
#![cfg(test)]

mod access;
mod admin;
mod client;
mod config;
mod contract;
mod deadline;
mod drain;
mod errors;
mod issuer_keys;
mod limits;
mod neighbors;
mod process;
mod retry;
mod standard;
mod support;
mod trace;
