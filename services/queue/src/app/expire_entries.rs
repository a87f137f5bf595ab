//! Jobs `turn sweep`, `closing sweep` and `unseen sweep`: workers → app → store::lines (lock) → store::entries →
//! engine::end_entries → engine::publish. The leader of an event ends expired turns, the entries of a queue that closed for
//! good, and idle entries. The database's time decides, and every transaction checks the lease.

use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::{EntryId, EventId, Named as _};

use super::App;
use crate::{
    domain::{entry::ExpireReason, queue_change::QueueChange},
    engine::leadership::LeaderShards,
    error::Error,
    store::{entries, lines, queues},
};

/// The entries of a queue to end.
#[derive(Clone, Debug)]
enum Selection {
    /// Entries whose turn has expired.
    ExpiredTurns,
    /// Those of these entries that still wait.
    Idle(Vec<EntryId>),
    /// All waiting entries.
    Waiting,
}

impl Selection {
    const fn reason(&self) -> ExpireReason {
        match self {
            Self::ExpiredTurns => ExpireReason::TurnExpired,
            Self::Idle(_) => ExpireReason::NotSeen,
            Self::Waiting => ExpireReason::QueueClosed,
        }
    }
}

impl App {
    /// Ends expired turns.
    pub(crate) async fn expire_turns(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = entries::events_with_expired_turns(&self.engine.stores.postgres).await?;
        for (event_id, lease) in shards.led(events) {
            warn_if_failed(event_id, self.expire_all(&lease, event_id, &Selection::ExpiredTurns).await);
        }
        Ok(())
    }

    /// Ends the waiting entries of queues that closed for good.
    pub(crate) async fn end_closed_queues(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = queues::closed_for_good(&self.engine.stores.postgres).await?;
        for (event_id, lease) in shards.led(events) {
            warn_if_failed(event_id, self.expire_all(&lease, event_id, &Selection::Waiting).await);
        }
        Ok(())
    }

    /// Ends waiting entries without a heartbeat within the idle timeout.
    pub(crate) async fn expire_idle_entries(&self, shards: &LeaderShards) -> Result<(), Error> {
        let events = queues::waiting(&self.engine.stores.postgres).await?;
        for (event_id, lease) in shards.led(events) {
            let expired = Box::pin(self.expire_idle_in(shards, &lease, event_id)).await;
            warn_if_failed(event_id, expired);
        }
        Ok(())
    }

    async fn expire_idle_in(
        &self,
        shards: &LeaderShards,
        lease: &Lease,
        event_id: EventId,
    ) -> Result<(), Error> {
        let engine = &self.engine;
        let current = queues::read(&engine.stores.postgres, event_id, &engine.defaults).await?;
        let idle = current.queue.policy.idle_timeout;
        loop {
            let unseen = engine.ranks.unseen(event_id, idle, self.sweep.batch_max).await;
            if unseen.is_err() {
                engine.heartbeats.interrupt();
            }
            let unseen = unseen?;
            // Heartbeats that Redis lost count as just sent. This pod does not know of losses before it led the event, so it
            // must have led it for the whole timeout.
            let is_silence = engine.heartbeats.is_complete_for(idle) && shards.has_led_for(event_id, idle);
            if unseen.is_empty() || !is_silence {
                return Ok(());
            }
            self.expire(lease, event_id, &Selection::Idle(unseen.clone())).await?;
            // Also those of entries that no longer wait and need no heartbeat.
            engine.ranks.delete_heartbeats(event_id, &unseen).await?;
        }
    }

    async fn expire_all(&self, lease: &Lease, event_id: EventId, selection: &Selection) -> Result<(), Error> {
        let batch_max = usize::try_from(self.sweep.batch_max).unwrap_or(usize::MAX);
        while self.expire(lease, event_id, selection).await? >= batch_max {}
        Ok(())
    }

    /// Ends one batch; returns the number of entries that ended.
    async fn expire(&self, lease: &Lease, event_id: EventId, selection: &Selection) -> Result<usize, Error> {
        let engine = &self.engine;
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = lines::lock_any(&transaction, event_id, &engine.defaults).await?;
            let (batch_max, now) = (self.sweep.batch_max, current.now);
            let ids = match selection {
                Selection::ExpiredTurns => {
                    entries::expired_turns(&transaction, event_id, now, batch_max).await?
                }
                Selection::Waiting => entries::first_waiting(&transaction, event_id, batch_max).await?,
                Selection::Idle(unseen) => {
                    let joined_until = now.checked_sub(current.queue.policy.idle_timeout).unwrap_or(now);
                    entries::waiting_among(&transaction, event_id, unseen, joined_until).await?
                }
            };
            let ended = engine.end_entries(&transaction, &mut current, &ids, selection.reason()).await?;
            Ok::<_, Error>((ended, current))
        };
        let (ended, current) = engine.stores.postgres.transaction("expire", work).await?;
        let count = ended.len();
        if count > 0 {
            tracing::info!(%event_id, count, reason = selection.reason().name(), "entries expired");
            engine.publish(QueueChange::ended(&current, ended)).await;
        }
        Ok(count)
    }
}

/// Logs a failure in one queue, which must not stop the others.
fn warn_if_failed(event_id: EventId, result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!(%event_id, error = %Chain(&error), "queue sweep failed, retrying next round");
    }
}
