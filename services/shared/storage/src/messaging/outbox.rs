//! Writes events to the outbox, in the transaction of the change that they report.

use std::sync::Arc;

use onsale_kit::telemetry::propagation;
use onsale_types::Clock;
use prost::Message as _;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{NewEvent, OutgoingEvent};
use crate::postgres::{Error, Transaction};

// `seq` follows the order of the array.
const INSERT: &str = "INSERT INTO outbox (event_id, topic, key, envelope)
    SELECT event_id, topic, key, envelope
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[])
        WITH ORDINALITY AS new (event_id, topic, key, envelope, place)
    ORDER BY place";

/// Outbox of a service. Clones share the hint to the relay.
#[derive(Clone)]
pub struct Outbox {
    source: &'static str,
    clock: Arc<dyn Clock>,
    hint: Arc<Notify>,
}

impl Outbox {
    /// Creates the outbox of the service `source`.
    #[must_use]
    pub fn new(source: &'static str, clock: Arc<dyn Clock>) -> Self {
        Self { source, clock, hint: Arc::new(Notify::new()) }
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Appends events to `transaction`, in their order, and returns their ids. The events exist if and only if it
    /// commits. Events of concurrent transactions are published in the order of the commits. If the order of one key's
    /// events matters, their transactions must exclude each other, for example by locking the key's row.
    pub async fn append(
        &self,
        transaction: &Transaction,
        events: &[impl OutgoingEvent],
    ) -> Result<Vec<Uuid>, Error> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let events: Vec<NewEvent> = events.iter().map(OutgoingEvent::to_new_event).collect();
        let now = self.clock.now();
        let traceparent = propagation::current_traceparent().unwrap_or_default();
        let ids: Vec<Uuid> = events.iter().map(|_| Uuid::now_v7()).collect();
        let topics: Vec<&str> = events.iter().map(|event| event.topic).collect();
        let keys: Vec<&str> = events.iter().map(|event| event.key.as_str()).collect();
        let envelopes: Vec<Vec<u8>> = events
            .iter()
            .zip(&ids)
            .map(|(event, id)| event.envelope(*id, self.source, now, &traceparent).encode_to_vec())
            .collect();
        transaction.execute(INSERT, &[&ids, &topics, &keys, &envelopes]).await?;
        Ok(ids)
    }

    /// Wakes the relay of this process. Call it after the commit; without it the events wait up to `poll_every`.
    pub fn wake_relay(&self) {
        self.hint.notify_one();
    }

    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    pub(super) fn hint(&self) -> Arc<Notify> {
        Arc::clone(&self.hint)
    }
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Outbox").field("source", &self.source).finish_non_exhaustive()
    }
}
