//! The whole mesh behind a real Envoy, as its users meet it: started by `onsale up`, used through the front door only.

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
