//! Inventory through gRPC, on a real Postgres and a real Redis Cluster.

#![cfg(test)]

mod availability;
mod consumers;
mod create_event;
mod holds;
mod list_events;
mod pools;
mod redis_away;
mod reserve_units;
mod rush;
mod sold_out;
mod starts;
mod steer_event;
mod support;
mod update_event;
