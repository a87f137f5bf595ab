//! Tests of Claim through gRPC on a real Postgres and a real Redis Cluster. Queue and Inventory are fakes.

#[cfg(test)]
mod confirm;
#[cfg(test)]
mod cooldown;
#[cfg(test)]
mod create;
#[cfg(test)]
mod create_batches;
#[cfg(test)]
mod create_idempotency;
#[cfg(test)]
mod create_refusals;
#[cfg(test)]
mod events;
#[cfg(test)]
mod expiry;
#[cfg(test)]
mod extend;
#[cfg(test)]
mod inventory;
#[cfg(test)]
mod invitations;
#[cfg(test)]
mod queue;
#[cfg(test)]
mod read;
#[cfg(test)]
mod release;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod support;
