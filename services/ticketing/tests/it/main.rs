//! Ticketing through gRPC, on a real Postgres and a real Redis Cluster.

#![cfg(test)]

mod support;

mod check_in;
mod crash;
mod events;
mod generation;
mod issue;
mod orders;
mod starts;
mod tickets;
mod void;
