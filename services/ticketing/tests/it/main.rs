//! Tests of Ticketing through gRPC and events, on a real Postgres and a real Redis Cluster.

#![cfg(test)]

mod support;

mod check_in_ticket;
mod crash;
mod events;
mod generation;
mod issue_tickets;
mod order_completed;
mod starts;
mod tickets;
mod void_tickets;
