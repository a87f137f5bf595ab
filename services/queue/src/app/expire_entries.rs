//! What ends with time: turns, the places of those who are gone, and everybody's when a queue closed for good. The
//! database's clock decides, and the event's leader does it.

use onsale_kit::error::Chain;
use onsale_storage::{lease::Lease, postgres::Transaction};
use onsale_types::{EntryId, EventId};

use super::{App, shards::LeaderShards, tell::QueueChange};
use crate::{
    domain::entry::ExpireReason,
    error::Error,
    store::{entries, queues},
};

/// Which entries of a queue are to end.
#[derive(Clone, Debug)]
enum Ending {
    /// Turns that ran out.
    Turns,
    /// Those of these who wait and were not seen.
    Unseen(Vec<EntryId>),
    /// Everybody who waits.
    Waiting,
}

impl Ending {
    const fn reason(&self) -> ExpireReason {
        match self {
            Self::Turns => ExpireReason::TurnExpired,
            Self::Unseen(_) => ExpireReason::NotSeen,
            Self::Waiting => ExpireReason::QueueClosed,
        }
    }
}

/// One queue that cannot be worked on keeps no other from it: the next round tries again.
fn report(event_id: EventId, worked: Result<(), Error>) {
    if let Err(error) = worked {
        tracing::warn!(%event_id, error = %Chain(&error), "failed to do what is due in a queue");
    }
}

impl App {
    /// Opens queues whose time has come.
    pub(crate) async fn open_due_queues(&self, shards: &LeaderShards) -> Result<(), Error> {
        for (event_id, lease) in shards.led(queues::due(&self.stores.postgres).await?) {
            report(event_id, self.open(&lease, event_id).await);
        }
        Ok(())
    }

    /// Ends turns that ran out.
    pub(crate) async fn expire_turns(&self, shards: &LeaderShards) -> Result<(), Error> {
        for (event_id, lease) in shards.led(entries::events_overdue(&self.stores.postgres).await?) {
            report(event_id, self.expire_all(&lease, event_id, &Ending::Turns).await);
        }
        Ok(())
    }

    /// Ends the places in queues that closed for good.
    pub(crate) async fn end_closed_queues(&self, shards: &LeaderShards) -> Result<(), Error> {
        for (event_id, lease) in shards.led(queues::over(&self.stores.postgres).await?) {
            report(event_id, self.expire_all(&lease, event_id, &Ending::Waiting).await);
        }
        Ok(())
    }

    /// Ends the places of those who gave no sign of life for too long.
    pub(crate) async fn expire_idle_entries(&self, shards: &LeaderShards) -> Result<(), Error> {
        for (event_id, lease) in shards.led(queues::waiting(&self.stores.postgres).await?) {
            report(event_id, Box::pin(self.expire_unseen_of(shards, &lease, event_id)).await);
        }
        Ok(())
    }

    async fn open(&self, lease: &Lease, event_id: EventId) -> Result<(), Error> {
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            // Read as of now, so it is open already; this writes it down.
            let mut current = queues::lock(&transaction, event_id, &self.defaults).await?;
            current.line.touch();
            queues::save_queue(&transaction, &current.queue).await?;
            queues::save_line(&transaction, event_id, &current.line).await?;
            Ok::<_, Error>(current)
        };
        let current = self.stores.postgres.transaction("open due", work).await?;
        tracing::info!(%event_id, "queue opened");
        self.tell(QueueChange::steered(&current)).await;
        Ok(())
    }

    async fn expire_unseen_of(
        &self,
        shards: &LeaderShards,
        lease: &Lease,
        event_id: EventId,
    ) -> Result<(), Error> {
        let current = queues::read(&self.stores.postgres, event_id, &self.defaults).await?;
        let idle = current.queue.policy.idle_timeout;
        loop {
            let unseen = self.ranks.unseen(event_id, idle, self.sweep.batch_max).await;
            if unseen.is_err() {
                self.seen.interrupt();
            }
            let unseen = unseen?;
            // Signs that Redis missed count as just made; and what it missed before this pod led the event is known to nobody.
            let is_silence = self.seen.is_complete_for(idle) && shards.has_led_for(event_id, idle);
            if unseen.is_empty() || !is_silence {
                return Ok(());
            }
            self.expire(lease, event_id, &Ending::Unseen(unseen.clone())).await?;
            // Also those who have had their turn by now: nobody waits for a sign of theirs.
            self.ranks.forget(event_id, &unseen).await?;
        }
    }

    async fn expire_all(&self, lease: &Lease, event_id: EventId, ending: &Ending) -> Result<(), Error> {
        while self.expire(lease, event_id, ending).await?
            >= usize::try_from(self.sweep.batch_max).unwrap_or(usize::MAX)
        {}
        Ok(())
    }

    /// Ends one batch; answers how many.
    async fn expire(&self, lease: &Lease, event_id: EventId, ending: &Ending) -> Result<usize, Error> {
        let work = |transaction: Transaction| async move {
            lease.guard(&transaction).await?;
            let mut current = queues::lock_any(&transaction, event_id, &self.defaults).await?;
            let batch_max = self.sweep.batch_max;
            let ids = match ending {
                Ending::Turns => entries::overdue(&transaction, event_id, current.now, batch_max).await?,
                Ending::Waiting => entries::first_waiting(&transaction, event_id, batch_max).await?,
                Ending::Unseen(unseen) => {
                    let idle = current.queue.policy.idle_timeout;
                    let since = current.now.checked_sub(idle).unwrap_or(current.now);
                    entries::waiting_among(&transaction, event_id, unseen, since).await?
                }
            };
            let ended = self.end(&transaction, &mut current, &ids, ending.reason()).await?;
            Ok::<_, Error>((ended, current))
        };
        let (ended, current) = self.stores.postgres.transaction("expire", work).await?;
        let count = ended.len();
        if count > 0 {
            tracing::info!(%event_id, count, reason = ending.reason().name(), "entries expired");
            self.tell(QueueChange::ended(&current, ended)).await;
        }
        Ok(count)
    }
}
