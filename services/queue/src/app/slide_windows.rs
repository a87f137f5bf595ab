//! Job `admission`, WINDOWED queues: workers → app → clients::inventory → store::lines (lock) → domain::windowed_entry →
//! engine::publish. The leader of an event slides its window; every transaction checks its lease (ADR 0010).

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::EventId;

use super::{App, EVENTS_CONCURRENCY};
use crate::{
    domain::queue_change::QueueChange,
    engine::leadership::LeaderShards,
    error::Error,
    metrics,
    store::{lines, windows},
};

impl App {
    /// Slides every due window that this pod leads.
    pub(crate) async fn slide_windows(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = windows::due(&self.engine.stores.postgres, &self.engine.defaults).await?;
        stream::iter(shards.led(events))
            .for_each_concurrent(EVENTS_CONCURRENCY, |(event_id, lease)| async move {
                // A failure in one queue must not stop the others.
                if let Err(error) = self.slide_window(&lease, event_id).await {
                    tracing::warn!(%event_id, error = %Chain(&error), "failed to slide a window, retrying next round");
                }
            })
            .await;
        Ok(())
    }

    async fn slide_window(&self, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let has_stock = self.inventory.availability(event_id).await?.free_units() > 0;
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            let (policy, now) = (current.queue.policy, current.now);
            let rate = policy.admissions_per_minute;
            current.line.bucket = current.line.bucket.filled_over(rate, policy.slide_interval, now);
            let count = current.line.slide_count(current.queue.state, &policy, has_stock, now);
            if count > 0 {
                current.line.slide(count, &policy, now);
                lines::save(&transaction, event_id, &current.line).await?;
            }
            Ok::<_, Error>((count, current))
        };
        let (count, current) = self.engine.stores.postgres.transaction("slide", work).await?;
        if count > 0 {
            metrics::admitted(count);
            let last_active_seq = current.line.last_admitted_seq;
            tracing::info!(%event_id, count, last_active_seq, "window slid");
            // A WINDOWED queue stores no entries; the counters of the line tell replicas who was admitted.
            self.engine.publish(QueueChange::admitted(&current, Vec::new())).await;
        }
        Ok(())
    }
}
