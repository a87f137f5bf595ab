//! Tests of the storage crate on a real Postgres and Redis Cluster. One binary, so that they share the stack.

#[cfg(test)]
mod due;
#[cfg(test)]
mod events;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod lease_faults;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod messaging;
#[cfg(test)]
mod messaging_faults;
#[cfg(test)]
mod migrate;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod redis_faults;
#[cfg(test)]
mod redis_hints;
#[cfg(test)]
mod redis_key;
#[cfg(test)]
mod redis_streams;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod row;
#[cfg(test)]
mod stores;
#[cfg(test)]
mod support;
