//! Scenarios on the whole mesh behind a real Envoy, started by `onsale up` and used through the front door.

#![cfg(test)]

mod support;

mod access;
mod clients;
mod crashes;
mod faults;
mod grpc_web;
mod invitation;
mod line;
mod pods;
mod purchase;
mod rest;
mod stock;
