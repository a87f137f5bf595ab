//! What a committed change means to others: the line in Redis, the watchers on every pod, the leader, the relay, and
//! systems outside of the mesh. All of it is a hint or a copy; whatever is lost here, somebody looks anyway a little later.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use onsale_kit::error::Chain;
use onsale_types::{EntryId, EventId};

use super::App;
use crate::{
    convert,
    domain::entry::{Entry, EntryState},
    metrics,
    store::{entries, ranks::Move},
};

/// Messages to outside sent at a time.
const OUTSIDE_CONCURRENCY: usize = 16;

/// How long the commit of an event's handler may take, mostly: only then is there something to see.
const COMMIT_TIME: Duration = Duration::from_millis(100);

/// What has happened to a queue.
#[derive(Clone, Debug)]
pub struct News {
    /// Whose queue.
    pub event_id: EventId,
    /// What changed in the line, if anything did.
    pub moved: Option<Move>,
    /// Who was admitted.
    pub granted: Vec<Entry>,
    /// Whose entry ended.
    pub ended: Vec<Entry>,
}

impl News {
    /// The queue changed, and nobody's place did.
    #[must_use]
    pub fn of(event_id: EventId) -> Self {
        Self { event_id, moved: None, granted: Vec::new(), ended: Vec::new() }
    }

    /// These entries ended; nobody up to `last_admitted_seq` waits.
    #[must_use]
    pub fn ended(event_id: EventId, ended: Vec<Entry>, last_admitted_seq: u64) -> Self {
        let waited = |entry: &&Entry| entry.turn.is_none();
        let gone: Vec<EntryId> = ended.iter().filter(waited).map(|entry| entry.entry_id).collect();
        let moved = (!gone.is_empty()).then(|| Move { joined: Vec::new(), gone, last_admitted_seq });
        Self { event_id, moved, granted: Vec::new(), ended }
    }

    fn frees_slot(&self) -> bool {
        self.ended.iter().any(|entry| entry.turn.is_some())
    }
}

impl App {
    /// Tells everybody whom it concerns. To be called after the commit.
    pub async fn tell(&self, news: News) {
        let event_id = news.event_id;
        if let Some(moved) = &news.moved {
            self.move_line(event_id, moved).await;
        }
        self.followers.nudge(event_id);
        if let Err(error) = self.ranks.hint(event_id).await {
            tracing::debug!(%event_id, error = %Chain(&error), "failed to hint at a change");
        }
        if news.frees_slot() {
            self.slot_freed.notify_one();
            if let Err(error) = self.ranks.wake_admission().await {
                tracing::debug!(error = %Chain(&error), "failed to hint at a free slot");
            }
        }
        if !news.granted.is_empty() || !news.ended.is_empty() {
            self.stores.outbox.wake_relay();
            self.tell_outside(&news).await;
        }
    }

    /// Tells of a change that an event's handler is about to commit; of the entries, only what was committed then.
    pub fn tell_later(self: &std::sync::Arc<Self>, event_id: EventId, touched: Vec<EntryId>) {
        let app = std::sync::Arc::clone(self);
        self.tasks.spawn("tell later", async move {
            tokio::time::sleep(COMMIT_TIME).await;
            let mut news = News::of(event_id);
            if !touched.is_empty() {
                match entries::by_ids(&app.stores.postgres, &touched).await {
                    Ok(found) => {
                        news.ended = found.into_iter().filter(|entry| !entry.state.is_open()).collect()
                    }
                    Err(error) => tracing::debug!(error = %Chain(&error), "failed to read what was changed"),
                }
            }
            app.tell(news).await;
        });
    }

    /// Brings the line in Redis up to date; what fails is compared as a whole a little later.
    pub(super) async fn move_line(&self, event_id: EventId, moved: &Move) {
        match self.ranks.apply(event_id, moved).await {
            Ok(true) => {}
            Ok(false) => self.healing.want(event_id),
            Err(error) => {
                tracing::debug!(%event_id, error = %Chain(&error), "failed to move the line in redis");
                self.healing.want(event_id);
            }
        }
    }

    async fn tell_outside(&self, news: &News) {
        let granted = news.granted.iter().filter_map(|entry| {
            let token = self.tokens.turn(entry, entry.turn?).ok()?.token;
            Some(convert::outside::granted(entry, &token))
        });
        let unsold = news.ended.iter().filter(|entry| entry.state != EntryState::Completed);
        let messages: Vec<String> = granted.chain(unsold.map(convert::outside::expired)).collect();
        let sending = stream::iter(messages)
            .map(|message| async move { self.ranks.tell_outside(message.as_bytes()).await })
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
