//! What a committed change means to others: the copies of the line on every pod, the line in Redis, the leader, the relay,
//! and systems outside of the mesh. All of it is a hint or a copy; whatever is lost here, somebody looks anyway a little
//! later.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;
use onsale_types::{EntryId, EventId};

use super::App;
use crate::{
    convert,
    domain::{
        entry::{Entry, EntryState},
        line_change::LineChange,
    },
    metrics,
    store::{queues::QueueAndLine, ranks::WaitingChange},
};

/// Messages to outside sent at a time.
const OUTSIDE_CONCURRENCY: usize = 16;

/// Changes that are being told at a time without anybody waiting for it; of one more, Redis learns when it is compared.
pub(crate) const PUBLISHING_MAX: usize = 64;

/// What has happened to a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueChange {
    /// Whose queue.
    event_id: EventId,
    /// The revision it led to.
    step: LineChange,
    /// Who joined, with their seqs.
    joined: Vec<(EntryId, u64)>,
    /// Who was admitted.
    granted: Vec<Entry>,
    /// Whose entry ended.
    ended: Vec<Entry>,
}

impl QueueChange {
    /// The queue is as `facts` say now, and nobody's place changed.
    pub(crate) fn steered(current: &QueueAndLine) -> Self {
        let mut news = Self::of(current);
        news.step.is_controlled = true;
        news
    }

    /// These joined.
    pub(crate) fn joined(current: &QueueAndLine, joined: Vec<(EntryId, u64)>) -> Self {
        Self { joined, ..Self::of(current) }
    }

    /// These have got their turn.
    pub(crate) fn granted(current: &QueueAndLine, granted: Vec<Entry>) -> Self {
        Self { granted, ..Self::of(current) }
    }

    /// These entries ended.
    pub(crate) fn ended(current: &QueueAndLine, ended: Vec<Entry>) -> Self {
        let seqs = |had_turn: bool| {
            let of_kind = ended.iter().filter(move |entry| entry.turn.is_some() == had_turn);
            of_kind.map(|entry| entry.seq).collect()
        };
        let mut news = Self::of(current);
        (news.step.gone, news.step.ended) = (seqs(false), seqs(true));
        Self { ended, ..news }
    }

    fn of(current: &QueueAndLine) -> Self {
        let line = &current.line;
        let step = LineChange {
            revision: line.revision,
            last_seq: line.last_seq,
            last_admitted_seq: line.last_admitted_seq,
            waiting_count: line.waiting_count,
            admitted_count: line.last_fencing_number,
            ..LineChange::default()
        };
        let event_id = current.queue.event_id;
        Self { event_id, step, joined: Vec::new(), granted: Vec::new(), ended: Vec::new() }
    }

    fn frees_slot(&self) -> bool {
        !self.step.ended.is_empty()
    }

    fn moved(&mut self) -> WaitingChange {
        let waited = |entry: &&Entry| entry.turn.is_none();
        WaitingChange {
            joined: std::mem::take(&mut self.joined),
            gone: self.ended.iter().filter(waited).map(|entry| entry.entry_id).collect(),
            last_admitted_seq: self.step.last_admitted_seq,
        }
    }
}

impl App {
    /// Tells everybody whom it concerns. To be called after the commit.
    pub(crate) async fn tell(&self, mut news: QueueChange) {
        let event_id = news.event_id;
        // This pod's own watchers first: they need nothing but the step.
        self.followers.push_local_change(event_id, news.step.clone());
        let frees_slot = news.frees_slot();
        if frees_slot {
            self.slot_freed.notify_one();
        }
        let moved = news.moved();
        self.move_line(event_id, &moved, Some(&news.step)).await;
        if let Err(error) = self.ranks.hint(event_id).await {
            tracing::debug!(%event_id, error = %Chain(&error), "failed to hint at a change");
        }
        if frees_slot && let Err(error) = self.ranks.wake_admission().await {
            tracing::debug!(error = %Chain(&error), "failed to hint at a free slot");
        }
        if !news.granted.is_empty() || !news.ended.is_empty() {
            self.stores.outbox.wake_relay();
            self.publish_external(&news).await;
        }
    }

    /// The same, without waiting for it.
    pub(crate) fn publish_in_background(self: &Arc<Self>, news: QueueChange) {
        let Ok(place) = Arc::clone(&self.publishing).try_acquire_owned() else {
            if news.frees_slot() {
                self.slot_freed.notify_one();
            }
            self.reconcile_requests.want(news.event_id);
            self.followers.push_local_change(news.event_id, news.step);
            return;
        };
        let app = Arc::clone(self);
        self.tasks.spawn("tell", async move {
            let _place = place;
            app.tell(news).await;
        });
    }

    /// Tells of a change as soon as the transaction that makes it has committed.
    pub(crate) fn publish_after_commit(self: &Arc<Self>, transaction: &Transaction, news: QueueChange) {
        let app = Arc::clone(self);
        transaction.after_commit(move || app.publish_in_background(news));
    }

    /// Brings the line in Redis up to date; what fails is compared as a whole a little later.
    pub(crate) async fn move_line(
        &self,
        event_id: EventId,
        moved: &WaitingChange,
        step: Option<&LineChange>,
    ) {
        match self.ranks.apply(event_id, moved, step).await {
            Ok(true) => {}
            Ok(false) => self.reconcile_requests.want(event_id),
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to move the line in redis");
                self.reconcile_requests.want(event_id);
            }
        }
    }

    async fn publish_external(&self, news: &QueueChange) {
        let granted = news.granted.iter().filter_map(|entry| {
            let token = self.tokens.turn(entry, entry.turn?).ok()?.token;
            Some(convert::external::granted(entry, &token))
        });
        let unsold = news.ended.iter().filter(|entry| entry.state != EntryState::Completed);
        let messages: Vec<String> = granted.chain(unsold.map(convert::external::expired)).collect();
        let sending = stream::iter(messages)
            .map(|message| async move { self.ranks.publish_external(message.as_bytes()).await })
            .buffer_unordered(OUTSIDE_CONCURRENCY);
        let failed = sending.filter(|sent| std::future::ready(sent.is_err())).count().await;
        if failed > 0 {
            tracing::debug!(failed, "failed to tell systems outside of the mesh");
        }
        for entry in &news.ended {
            metrics::ended(entry.expire_reason.map_or("COMPLETED", |reason| reason.name()));
        }
    }
}
