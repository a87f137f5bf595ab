//! Notification through gRPC and events, on a real Postgres, a real Redis Cluster and a real mail server.

#![cfg(test)]

mod dead_letters;
mod enqueue_notifications;
mod events;
mod failures;
mod orders;
mod starts;
mod support;
