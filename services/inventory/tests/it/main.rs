//! Inventory through gRPC, on a real Postgres and a real Redis Cluster.

mod starts;
