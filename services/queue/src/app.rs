//! The use cases of Queue, one file each: load, decide, save. What several of them share is here.

pub mod admit;
pub mod control;
pub mod expire;
pub mod follow;
pub mod heal;
pub mod join;
pub mod learn;
pub mod leave;
pub mod places;
pub mod seen;
pub mod snapshot;
pub mod standing;
pub mod tell;
pub mod tokens;
pub mod turns;
pub mod watch;

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use onsale_kit::{
    batcher::{Batcher, BatcherConfig},
    tasks::Tasks,
};
use onsale_storage::{Stores, idempotency, postgres::Transaction, redis::Hints};
use onsale_types::{Clock, Timestamp};
use prost::Message;
use tokio::sync::Notify;

use self::{
    follow::Followers, heal::Healing, places::Places, seen::Seen, snapshot::Snapshots, tell::News,
    tokens::Tokens,
};
use crate::{
    clients::inventory::Inventory,
    config::{AdmissionConfig, SweepConfig, WatchConfig},
    domain::policy::Policy,
    error::Error,
    store::ranks::Ranks,
};

/// What handlers, consumers and workers share.
pub struct App {
    /// Postgres, Redis, outbox.
    pub(crate) stores: Stores,
    /// Places in line, in Redis.
    pub(crate) ranks: Ranks,
    /// Positions, from wherever they are to be had.
    pub(crate) places: Arc<Places>,
    /// Positions asked for one by one, answered together.
    pub(crate) positions: Batcher<places::Asked, Option<u64>, Error>,
    /// What is still worth waiting for.
    pub(crate) inventory: Inventory,
    /// Turn tokens and queue tokens.
    pub(crate) tokens: Tokens,
    pub(crate) clock: Arc<dyn Clock>,
    /// The policy of a queue whose organizer set nothing.
    pub(crate) defaults: Policy,
    pub(crate) admission: AdmissionConfig,
    pub(crate) sweep: SweepConfig,
    pub(crate) watching: WatchConfig,
    /// Hints of other pods.
    pub(crate) hints: Hints,
    pub(crate) tasks: Tasks,
    /// The queues that this pod's watchers follow.
    pub(crate) followers: Followers,
    /// Signs of life that are not in Redis yet.
    pub(crate) seen: Seen,
    /// Lines that Redis has to be told again.
    pub(crate) healing: Arc<Healing>,
    /// A slot may be free.
    pub(crate) slot_freed: Notify,
    /// The public facts, for a moment.
    pub(crate) snapshots: Snapshots,
}

/// What an [`App`] is made of.
pub struct Parts {
    /// Postgres, Redis, outbox.
    pub stores: Stores,
    /// Places in line, in Redis.
    pub ranks: Ranks,
    /// What is still worth waiting for.
    pub inventory: Inventory,
    /// Turn tokens and queue tokens.
    pub tokens: Tokens,
    /// The time of day, for tokens.
    pub clock: Arc<dyn Clock>,
    /// The policy of a queue whose organizer set nothing.
    pub defaults: Policy,
    /// How turns are granted.
    pub admission: AdmissionConfig,
    /// What happens with time.
    pub sweep: SweepConfig,
    /// How streams are fed.
    pub watching: WatchConfig,
    /// Where background work is started.
    pub tasks: Tasks,
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { stores, ranks, inventory, tokens, clock, defaults, admission, sweep, watching, tasks } =
            parts;
        let healing = Arc::new(Healing::default());
        let places = Arc::new(Places::new(stores.postgres.clone(), ranks.clone(), Arc::clone(&healing)));
        let positions =
            Batcher::new("positions", BatcherConfig::default(), places::Asking(Arc::clone(&places)), &tasks);
        let hints = Hints::start(&stores.redis, &tasks);
        Arc::new(Self {
            stores,
            ranks,
            places,
            positions,
            inventory,
            tokens,
            clock,
            defaults,
            admission,
            sweep,
            watching,
            hints,
            tasks,
            followers: Followers::default(),
            seen: Seen::default(),
            healing,
            slot_freed: Notify::new(),
            snapshots: Snapshots::default(),
        })
    }

    /// The time of day, as this pod sees it. Nothing that pods must agree on may depend on it.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Does a change once, however often it is asked for, and tells the news after the commit.
    pub(crate) async fn change_once<R, F>(
        &self,
        label: &'static str,
        request: &idempotency::Request<'_>,
        work: impl Fn(Transaction) -> F,
    ) -> Result<R, Error>
    where
        R: Message + Default,
        F: Future<Output = Result<(R, News), Error>>,
    {
        let told = Mutex::new(None);
        let (told_by, work) = (&told, &work);
        let once = |transaction: Transaction| async move {
            let change = async {
                let (answer, news) = work(transaction.clone()).await?;
                *lock(told_by) = Some(news);
                Ok::<R, Error>(answer)
            };
            idempotency::once(&transaction, request, change).await
        };
        let answer = self.stores.postgres.transaction(label, once).await?;
        // Nothing when the answer is an old one.
        let news = lock(&told).take();
        if let Some(news) = news {
            self.tell(news).await;
        }
        Ok(answer)
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").finish_non_exhaustive()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while holding one; and what is in it would still be right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
