//! Open streams of all pods, in Redis. Milestone pushes skip customers with an open stream; nothing else depends on it.

use std::{collections::HashSet, sync::LazyLock, time::Duration};

use onsale_storage::redis::{Command, Error, Redis, Script};
use onsale_types::{EntryId, EventId};

use super::{breaker::with_timeout, keys::Keys, millis, texts};

/// Time after which an unconfirmed stream is deleted, because its pod is gone.
const KEEP: Duration = Duration::from_secs(10 * 60);

static OPENED: LazyLock<Script> = LazyLock::new(|| Script::new("queue_opened", include_str!("opened.lua")));
static WATCHING: LazyLock<Script> =
    LazyLock::new(|| Script::new("queue_watching", include_str!("watching.lua")));

/// The open streams of all pods.
#[derive(Clone, Debug)]
pub struct Presence {
    redis: Redis,
    keys: Keys,
}

impl Presence {
    /// Returns the open streams in `redis` under `keys`.
    #[must_use]
    pub fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys }
    }

    /// Confirms that these entries have an open stream now. The caller repeats it while the stream is open.
    pub async fn opened(&self, event_id: EventId, entries: &[EntryId]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let call = OPENED.call().key(&self.keys.watching(event_id)?).arg(millis(KEEP)).arg(texts(entries));
        let _done: i64 = with_timeout(&self.redis, call.idempotent()).await?;
        Ok(())
    }

    /// Records that these entries closed a stream. An entry with another stream elsewhere returns with the next
    /// [`Presence::opened`].
    pub async fn closed(&self, event_id: EventId, entries: &[EntryId]) -> Result<(), Error> {
        if entries.is_empty() {
            return Ok(());
        }
        let command = Command::new("ZREM").key(&self.keys.watching(event_id)?).arg(texts(entries));
        let _removed: i64 = with_timeout(&self.redis, command.idempotent()).await?;
        Ok(())
    }

    /// Returns those of the entries whose stream was confirmed within `max_age`.
    pub async fn watching_among(
        &self,
        event_id: EventId,
        entries: &[EntryId],
        max_age: Duration,
    ) -> Result<HashSet<EntryId>, Error> {
        if entries.is_empty() {
            return Ok(HashSet::new());
        }
        let call = WATCHING.call().key(&self.keys.watching(event_id)?).arg(millis(max_age));
        let found: Vec<bool> = with_timeout(&self.redis, call.arg(texts(entries)).idempotent()).await?;
        let watching = entries.iter().zip(found).filter(|(_, is_watching)| *is_watching);
        Ok(watching.map(|(entry_id, _)| *entry_id).collect())
    }
}
