//! Events between services: outbox → Redis Stream → inbox. No event is lost, and each takes effect once.
//!
//! 1. [`Outbox`]: a service writes an event in the transaction that makes it true.
//! 2. [`Relay`]: numbers the events of a topic without gaps, in one transaction that holds the topic's counter, so that
//!    numbers become visible in order; then appends them to the topic's stream *under that number as their id*. The
//!    stream itself therefore says how far it has got: there is nothing to mark, a relay may die anywhere, two may run
//!    at once, and a stream that was wiped or fell behind in a failover is seen by its last id and filled again.
//! 3. [`Consumer`]: reads in a group, runs its handler in one transaction with an inbox row, then acknowledges. What a
//!    dead consumer left is taken over; what keeps failing ends in the [`DeadLetters`].
//!
//! Publishing again is harmless because the inbox remembers. It must remember longer than an event can come again, and
//! an event can come again as long as its outbox row exists; so inbox rows outlive outbox rows by far, and an event
//! older than the inbox's memory is never handled on a guess: it goes to the dead letters for a human to judge.
//!
//! Who listens to a topic is said by the contract, not by who happens to be there: an event stays until each of its
//! listeners has acknowledged it, also one that has never started, and nobody else can listen.
//!
//! Postgres is the only copy that counts. Nothing here may acknowledge before the commit, delete a row that a listener
//! has not acknowledged, or trust a number that Redis made.

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

/// What can go wrong on the way.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Postgres failed.
    #[error("failed to move events in postgres")]
    Postgres(#[from] postgres::Error),
    /// Redis failed.
    #[error("failed to move events in redis")]
    Redis(#[from] redis::Error),
    /// A setting makes no sense.
    #[error("invalid messaging settings: {message}")]
    Config {
        /// What is wrong.
        message: &'static str,
    },
    /// The contract does not name the group as a listener of the topic. Nothing would be kept for it.
    #[error("{group} is not a listener of {topic} in the contract")]
    NotAListener {
        /// The group.
        group: String,
        /// The topic.
        topic: &'static str,
    },
    /// The stream has ids that our outbox never gave out: two services write to one topic, or the database was set
    /// back. New events would count as published already, so nothing is published until a human has looked.
    #[error("stream of {topic} is at {stream}, ahead of its outbox at {outbox}")]
    StreamAhead {
        /// The topic.
        topic: String,
        /// The stream's last position.
        stream: i64,
        /// The outbox's last position.
        outbox: i64,
    },
}

/// The key of a topic's stream. The topic is the tag: what one script touches lies together, and topics spread.
pub(crate) fn stream_key(redis: &Redis, topic: &str) -> Result<Key, redis::Error> {
    // Shared by producer and listeners, so under neither's name.
    let keyspace: Keyspace = redis.keyspace("events")?;
    Ok(keyspace.key("stream", topic)?)
}
