//! Queue through gRPC, on a real Postgres and a real Redis Cluster, with a fake Inventory.

#![cfg(test)]

mod admission;
mod bad_input;
mod block;
mod clock;
mod control;
mod crowd;
mod events;
mod external;
mod faults;
mod inventory;
mod join;
mod leadership;
mod leave;
mod milestones;
mod neighbors;
mod pods;
mod polls;
mod position;
mod recovery;
mod starts;
mod stats;
mod streams;
mod support;
mod turns;
mod watch;
mod windowed;
