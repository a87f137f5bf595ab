//! Admission: turns for those at the head of the line, as many as rate, open turns and stock allow. Done by the event's
//! leader, and every transaction proves that it still is the one.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::EventId;

use super::{App, lanes::Lanes, tell::News};
use crate::{
    convert,
    domain::{admission, entry::Entry},
    error::Error,
    metrics,
    store::{
        entries,
        queues::{self, Facts},
    },
};

/// Queues worked on at a time.
pub(crate) const EVENTS_CONCURRENCY: usize = 8;

/// Transactions for one queue in one round: what is left waits for the next.
const BATCHES_MAX: u32 = 64;

impl App {
    /// One round over all queues that this pod leads and in which somebody may be admitted.
    pub(crate) async fn admit_round(self: &Arc<Self>, lanes: &Lanes) -> Result<(), Error> {
        let events = queues::admitting(&self.stores.postgres, &self.defaults).await?;
        stream::iter(lanes.led(events))
            .for_each_concurrent(EVENTS_CONCURRENCY, |(event_id, lease)| async move {
                // One queue that cannot go on keeps no other from doing so.
                if let Err(error) = self.admit_event(&lease, event_id).await {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to admit");
                }
            })
            .await;
        Ok(())
    }

    async fn admit_event(self: &Arc<Self>, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let mut free_units = self.inventory.availability(event_id).await?.free_units();
        let batch_max = u64::from(self.admission.batch_max);
        for _ in 0..BATCHES_MAX {
            if free_units == 0 || !lease.is_current() {
                return Ok(());
            }
            let (facts, granted) = self.admit_batch(lease, event_id, free_units).await?;
            let count = u64::try_from(granted.len()).unwrap_or(u64::MAX);
            free_units = free_units.saturating_sub(count);
            let is_full = count >= batch_max;
            if let Some(last) = granted.last() {
                metrics::admitted(granted.len());
                tracing::info!(%event_id, count, last_seq = last.seq, "customers admitted");
                self.tell_soon(News::granted(&facts, granted));
                self.line_moved.notify_one();
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
    ) -> Result<(Facts, Vec<Entry>), Error> {
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut facts = queues::lock(&transaction, event_id, &self.defaults).await?;
            let policy = facts.queue.policy;
            facts.line.bucket = facts.line.bucket.filled(policy.admissions_per_minute, facts.now);
            let batch_max = u64::from(self.admission.batch_max);
            let count = admission::count(facts.queue.state, &policy, &facts.line, free_units, batch_max);
            if count == 0 {
                return Ok((facts, Vec::new()));
            }
            let revision = facts.line.revision.saturating_add(1);
            let last_fencing = facts.line.last_fencing_number;
            let granted =
                entries::admit(&transaction, event_id, count, revision, last_fencing, facts.now, &policy)
                    .await?;
            let Some(last) = granted.last() else { return Ok((facts, granted)) };
            facts.line.admitted(u64::try_from(granted.len()).unwrap_or(0), last.seq);
            queues::save_line(&transaction, event_id, &facts.line).await?;
            let checkout_url = self.tokens.checkout_url(event_id);
            let events: Vec<_> = granted
                .iter()
                .filter_map(|entry| convert::events::granted(&facts.queue, entry, &checkout_url))
                .collect();
            self.stores.outbox.append(&transaction, &events).await?;
            Ok((facts, granted))
        };
        self.stores.postgres.transaction("admit", work).await
    }
}
