//! Inventory through gRPC, on a real Postgres and a real Redis Cluster.

#![cfg(test)]

mod availability;
mod bad_input;
mod books;
mod consumers;
mod create_event;
mod crowd;
mod event_rules;
mod holds;
mod invitations;
mod invited;
mod list_events;
mod pools;
mod postgres_restarts;
mod quota_races;
mod quota_return;
mod quotas;
mod redis_away;
mod redis_faults;
mod reserve_units;
mod rush;
mod seat_race;
mod sold_out;
mod starts;
mod steer_event;
mod support;
mod update_event;
