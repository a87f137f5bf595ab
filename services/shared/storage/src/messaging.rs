//! Events between services: outbox → Redis Stream → inbox. No event is lost, and each takes effect once.
//!
//! 1. [`Outbox`]: a service writes an event in the transaction of the change that it reports.
//! 2. [`Relay`]: assigns gap-free positions to the events of a topic, in one transaction that locks the topic's
//!    counter, so that positions become visible in order. It then appends the events to the topic's stream *with the
//!    position as entry id*. The stream's last id therefore shows its progress: no marks are needed, a relay may crash
//!    anywhere, two may run at the same time, and a stream that was wiped or lost entries in a failover is detected by
//!    its last id and refilled.
//! 3. [`Consumer`]: reads in a group, runs its handler in one transaction with an inbox row, then acknowledges. Another
//!    consumer takes over the events of a crashed one. Events that keep failing end in the [`DeadLetters`].
//!
//! Publishing an event again is harmless because the inbox records handled events. An event can be published again as
//! long as its outbox row exists, so inbox rows must outlive outbox rows by far. An event older than the inbox
//! retention may have been handled already; it goes to the dead letters, for a person to decide.
//!
//! The contract, not the running processes, defines the listeners of a topic: an event is kept until each of them has
//! acknowledged it, even one that has never started, and no other service can listen.
//!
//! Postgres holds the only authoritative copy. This module must never acknowledge before the commit, delete a row that
//! a listener has not acknowledged, or trust a position that came from Redis.

mod consumer;
mod dead_letters;
mod delivery;
mod event;
mod handling;
mod listeners;
mod metrics;
mod outbox;
mod per_key_queue;
mod relay;
mod retention;

use crate::postgres;
use crate::redis::{self, Key, Keyspace, Redis};

pub use consumer::{Consumer, ConsumerConfig};
pub use dead_letters::{DeadLetter, DeadLetters, LettersPage};
pub use event::{Message, MessageError, NewEvent, OutgoingEvent};
pub use handling::{Handler, HandlerError};
pub use listeners::{Listeners, Received};
pub use outbox::Outbox;
pub use relay::{Relay, RelayConfig};

/// A failure to publish or consume events.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A statement of the relay or consumer failed in Postgres.
    #[error("failed to read or write events in postgres")]
    Postgres(#[from] postgres::Error),
    /// A command of the relay or consumer failed in Redis.
    #[error("failed to read or write events in redis")]
    Redis(#[from] redis::Error),
    /// A setting is out of range.
    #[error("invalid messaging settings: {message}")]
    Config {
        /// Violated rule, for the message.
        message: &'static str,
    },
    /// The contract does not name the group as a listener of the topic, so no events would be kept for it.
    #[error("{group} is not a listener of {topic} in the contract")]
    NotAListener {
        /// Name of the group.
        group: String,
        /// Topic as the contract names it.
        topic: &'static str,
    },
    /// The stream has positions that the outbox never assigned: two services write to one topic, or the database was
    /// restored from a backup. New events would count as published already, so the relay publishes nothing until a
    /// person has acted.
    #[error("stream of {topic} is at {stream}, ahead of its outbox at {outbox}")]
    StreamAhead {
        /// Topic as the contract names it.
        topic: String,
        /// Last position in the stream.
        stream: i64,
        /// Last position that the outbox assigned.
        outbox: i64,
    },
}

/// Returns the key of a topic's stream. The topic is the tag, so topics spread over the cluster.
pub(crate) fn stream_key(redis: &Redis, topic: &str) -> Result<Key, redis::Error> {
    // Producers and listeners share the stream, so its keyspace belongs to neither.
    let keyspace: Keyspace = redis.keyspace("events")?;
    Ok(keyspace.key("stream", topic)?)
}
