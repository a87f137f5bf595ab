//! Publishes a committed queue change to the line replicas in memory, the line in Redis, the admission leader, the outbox
//! relay and the external channel `queue_events`. Publishing is best effort: inside the mesh every receiver also polls or is
//! reconciled, so a lost message only adds delay.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;
use onsale_types::Named as _;

use super::Engine;
use crate::{
    domain::{entry::EntryState, event::ExternalMessage, queue_change::QueueChange},
    metrics,
};

/// External messages sent at a time.
const EXTERNAL_CONCURRENCY: usize = 16;

/// Changes published in the background at a time. Beyond that, Redis learns of a change by reconciliation.
pub(crate) const PUBLISHING_MAX: usize = 64;

/// Encodes an external message.
pub(crate) type ExternalEncoder = fn(&ExternalMessage<'_>) -> String;

impl Engine {
    /// Publishes a change. Call it after the commit.
    pub(crate) async fn publish(&self, mut change: QueueChange) {
        let event_id = change.event_id;
        // Watchers of this pod first: they need nothing from Redis.
        self.replicas.push_local_change(event_id, change.line_change.clone());
        let frees_slot = change.frees_slot();
        if frees_slot {
            self.slot_freed.notify_one();
        }
        let waiting_change = change.take_waiting_change();
        match self.ranks.apply(event_id, &waiting_change, Some(&change.line_change)).await {
            Ok(true) => {}
            Ok(false) => self.reconcile_requests.request(event_id),
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to update the line in redis, reconciling it");
                self.reconcile_requests.request(event_id);
            }
        }
        if let Err(error) = self.ranks.announce(event_id).await {
            tracing::debug!(%event_id, error = %Chain(&error), "failed to announce a queue change, other pods will poll it");
        }
        if frees_slot && let Err(error) = self.ranks.wake_admission().await {
            tracing::debug!(error = %Chain(&error), "failed to announce a free slot, the leader will poll it");
        }
        if !change.admitted.is_empty() || !change.ended.is_empty() {
            self.stores.outbox.wake_relay();
            self.publish_external(&change).await;
        }
    }

    /// Publishes a change in a background task. If too many are under way, only this pod's watchers get it at once.
    pub(crate) fn publish_in_background(self: &Arc<Self>, change: QueueChange) {
        let Ok(permit) = Arc::clone(&self.publishing).try_acquire_owned() else {
            if change.frees_slot() {
                self.slot_freed.notify_one();
            }
            self.reconcile_requests.request(change.event_id);
            self.replicas.push_local_change(change.event_id, change.line_change);
            return;
        };
        let engine = Arc::clone(self);
        self.tasks.spawn("tell", async move {
            let _permit = permit;
            engine.publish(change).await;
        });
    }

    /// Publishes a change in a background task as soon as `transaction` has committed.
    pub(crate) fn publish_after_commit(self: &Arc<Self>, transaction: &Transaction, change: QueueChange) {
        let engine = Arc::clone(self);
        transaction.after_commit(move || engine.publish_in_background(change));
    }

    async fn publish_external(&self, change: &QueueChange) {
        let admitted = change.admitted.iter().filter_map(|entry| {
            let token = self.tokens.entry_turn(entry, entry.turn?).ok()?.token;
            Some((self.encode_external)(&ExternalMessage::TurnGranted { entry, token: &token }))
        });
        let unsold = change.ended.iter().filter(|entry| entry.state != EntryState::Completed);
        let expired = unsold.map(|entry| (self.encode_external)(&ExternalMessage::Expired { entry }));
        let messages: Vec<String> = admitted.chain(expired).collect();
        let sending = stream::iter(messages)
            .map(|message| async move { self.ranks.publish_external(message.as_bytes()).await })
            .buffer_unordered(EXTERNAL_CONCURRENCY);
        let failed = sending.filter(|sent| std::future::ready(sent.is_err())).count().await;
        if failed > 0 {
            tracing::debug!(failed, "failed to publish messages to systems outside the mesh, dropping them");
        }
        for entry in &change.ended {
            metrics::ended(entry.expire_reason.map_or("COMPLETED", |reason| reason.name()));
        }
    }
}
