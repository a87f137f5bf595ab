//! Job `admission`: workers → app → clients::inventory → store::lines (lock) → domain::admission → store::entries →
//! engine::publish. The leader of an event grants turns from the head of the line; every transaction checks its lease.

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::EventId;

use super::{App, EVENTS_CONCURRENCY};
use crate::{
    domain::{
        admission, entry::Entry, event::OutgoingQueueEvent, queue::QueueAndLine, queue_change::QueueChange,
    },
    engine::leadership::LeaderShards,
    error::Error,
    metrics,
    store::{entries, lines, queues},
};

/// Transactions for one queue in one round. The rest waits for the next round.
const BATCHES_MAX: u32 = 64;

impl App {
    /// Runs one round over all TRACKED queues that this pod leads.
    pub(crate) async fn admit_customers(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = queues::admitting(&self.engine.stores.postgres, &self.engine.defaults).await?;
        stream::iter(shards.led(events))
            .for_each_concurrent(EVENTS_CONCURRENCY, |(event_id, lease)| async move {
                // A failure in one queue must not stop the others.
                if let Err(error) = self.admit_event(&lease, event_id).await {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to admit customers, retrying next round");
                }
            })
            .await;
        Ok(())
    }

    async fn admit_event(&self, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let mut free_units = self.inventory.availability(event_id).await?.free_units();
        let batch_max = u64::from(self.admission.batch_max);
        for _ in 0..BATCHES_MAX {
            if free_units == 0 || !lease.is_current() {
                return Ok(());
            }
            let (current, admitted) = self.admit_batch(lease, event_id, free_units).await?;
            let count = u64::try_from(admitted.len()).unwrap_or(u64::MAX);
            free_units = free_units.saturating_sub(count);
            let is_full = count >= batch_max;
            if let Some(last) = admitted.last() {
                metrics::admitted(count);
                tracing::info!(%event_id, count, last_seq = last.seq, "customers admitted");
                self.engine.publish_in_background(QueueChange::admitted(&current, admitted));
                self.engine.line_moved.notify_one();
            }
            if !is_full {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn admit_batch(
        &self,
        lease: &Lease,
        event_id: EventId,
        free_units: u64,
    ) -> Result<(QueueAndLine, Vec<Entry>), Error> {
        let engine = &self.engine;
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = lines::lock(&transaction, event_id, &engine.defaults).await?;
            let (policy, now) = (current.queue.policy, current.now);
            let line = &mut current.line;
            line.bucket = line.bucket.filled(policy.admissions_per_minute, now);
            let batch_max = u64::from(self.admission.batch_max);
            let count = admission::count(current.queue.state, &policy, line, free_units, batch_max);
            if count == 0 {
                return Ok((current, Vec::new()));
            }
            let (revision, last_fencing) = (line.revision.saturating_add(1), line.last_fencing_number);
            let admitted =
                entries::admit(&transaction, event_id, count, revision, last_fencing, now, &policy).await?;
            let Some(last) = admitted.last() else { return Ok((current, admitted)) };
            line.admit(u64::try_from(admitted.len()).unwrap_or(0), last.seq);
            lines::save(&transaction, event_id, line).await?;
            let checkout_url = engine.tokens.checkout_url(event_id);
            let (queue, checkout_url) = (&current.queue, checkout_url.as_str());
            let events: Vec<_> = admitted
                .iter()
                .filter_map(|entry| {
                    let turn = entry.turn?;
                    Some(OutgoingQueueEvent::TurnGranted { queue, entry, turn, checkout_url })
                })
                .collect();
            engine.stores.outbox.append(&transaction, &events).await?;
            drop(events);
            Ok((current, admitted))
        };
        engine.stores.postgres.transaction("admit", work).await
    }
}
