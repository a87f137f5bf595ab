//! Queue through gRPC, on a real Postgres and a real Redis Cluster; its one neighbor is played by a small server.

#![cfg(test)]

mod admission;
mod bad_input;
mod block;
mod clock;
mod control;
mod crowd;
mod events;
mod faults;
mod inventory;
mod join;
mod lanes;
mod leave;
mod milestones;
mod neighbors;
mod outside;
mod person;
mod pod;
mod pods;
mod polls;
mod position;
mod recovery;
mod starts;
mod stats;
mod streams;
mod turns;
mod watch;
mod watcher;
mod windowed;
mod world;
