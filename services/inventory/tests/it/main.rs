//! Inventory through gRPC, on a real Postgres and a real Redis Cluster.

#![cfg(test)]

mod availability;
mod bad_input;
mod consumers;
mod create_event;
mod crowd;
mod event_rules;
mod event_transitions;
mod holds;
mod invitations;
mod list_events;
mod pools;
mod postgres_restarts;
mod quota_races;
mod quota_return;
mod quotas;
mod redis_faults;
mod redis_unavailable;
mod reserve_units;
mod rush;
mod seat_race;
mod sold_out;
mod start_and_stop;
mod support;
mod update_event;
