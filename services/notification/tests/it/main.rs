//! Tests of Notification through gRPC and events, on real Postgres and Redis Cluster, with a sandbox mail server.

#![cfg(test)]

mod dead_letters;
mod enqueue_notifications;
mod events;
mod failures;
mod orders;
mod starts;
mod support;
