//! Queue through gRPC, on a real Postgres and a real Redis Cluster; its one neighbour is played by a small server.

#![cfg(test)]

mod admission;
mod control;
mod events;
mod inventory;
mod join;
mod leave;
mod outside;
mod position;
mod recovery;
mod starts;
mod turns;
mod watch;
mod watcher;
mod world;
