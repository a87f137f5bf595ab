//! The loop that keeps one process' candidacies: one task, however many names, with a bounded number of questions at a
//! time.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use onsale_kit::{tasks::Tasks, worker::Condition};
use parking_lot::{Mutex, MutexGuard};
use rand::RngExt;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use super::{
    Error, Leadership, Lease, LeaseConfig,
    candidate::{Candidate, Elapsed, LeaseAction, Timing},
    stores::Stores,
};
use crate::{
    postgres::Postgres,
    redis::{Key, Keyspace, Redis},
};

/// What the lease keys are called; the name of the lease is their tag, which spreads them over the cluster.
const KEY_NAME: &str = "lease";

/// The candidacies of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Election {
    keys: Keyspace,
    /// Holds at most one message per candidacy, so it is bounded by their number.
    entering: mpsc::UnboundedSender<Member>,
    shared: Arc<Shared>,
    timing: Timing,
}

/// What the loop shares with the candidacies.
#[derive(Debug)]
struct Shared {
    names: Mutex<HashSet<String>>,
    /// Somebody left, or was fenced.
    wake: Arc<Notify>,
    /// Where the candidates' clocks begin.
    base: Instant,
}

impl Election {
    /// Starts the loop. With the shutdown of `tasks` it gives every lease back and ends.
    pub fn start(
        redis: &Redis,
        postgres: &Postgres,
        keys: &Keyspace,
        config: &LeaseConfig,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        config.validate()?;
        let (entering, entered) = mpsc::unbounded_channel();
        let stores = Stores {
            redis: redis.clone(),
            postgres: postgres.clone(),
            ttl: config.ttl,
            // So that a leader has several tries before its lease is over.
            action_timeout: config.ttl / 4,
        };
        let shared =
            Arc::new(Shared { names: Mutex::default(), wake: Arc::new(Notify::new()), base: Instant::now() });
        let election = ElectionLoop {
            stores: Arc::new(stores),
            shared: Arc::clone(&shared),
            concurrency: config.concurrency,
            waiting: BTreeMap::new(),
            running: FuturesUnordered::new(),
        };
        tasks.spawn("lease election", election.run(entered, tasks.token()));
        let timing = Timing {
            ttl: config.ttl,
            margin: config.margin,
            renew_every: config.renew_every,
            try_every: config.try_every,
        };
        Ok(Self { keys: keys.clone(), entering, shared, timing })
    }

    /// Becomes a candidate for `name`, until the candidacy is dropped. The name must make a key: no spaces or braces.
    pub fn enter(&self, name: &str) -> Result<Candidacy, Error> {
        let key = self.keys.key(KEY_NAME, name).map_err(crate::redis::Error::from)?;
        if !self.shared.names().insert(name.to_owned()) {
            return Err(Error::Entered { name: name.to_owned() });
        }
        let (sender, leadership) = watch::channel(Leadership::Follower);
        let left = CancellationToken::new();
        let candidacy =
            Candidacy { name: name.to_owned(), leadership, left: left.clone(), election: self.clone() };
        let member = Member {
            name: name.to_owned(),
            key,
            token: uuid::Uuid::new_v4().to_string(),
            candidate: Candidate::new(self.timing, self.shared.base.elapsed()),
            leadership: sender,
            left,
        };
        // On failure the candidacy is dropped, and the name is free again.
        self.entering.send(member).map_err(|_closed| Error::Ended)?;
        Ok(candidacy)
    }
}

impl Shared {
    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.names.lock()
    }

    fn instant(&self, elapsed: Elapsed) -> Instant {
        self.base.checked_add(elapsed).unwrap_or(self.base)
    }
}

/// This process' candidacy for one lease. Dropping it gives the lease back.
#[derive(Debug)]
pub struct Candidacy {
    name: String,
    leadership: watch::Receiver<Leadership>,
    left: CancellationToken,
    /// Keeps the loop alive.
    election: Election,
}

impl Candidacy {
    /// What it is for.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this process leads, and a wake-up when that changes. A tenure whose renewals fail shows here a little
    /// late; [`Lease::is_current`] knows it in time.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// The lease, if this process leads now.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.leadership.borrow().lease().filter(|lease| lease.is_current()).cloned()
    }

    /// Returns the condition that this process leads, for a worker. It keeps the candidacy until the worker ends.
    #[must_use]
    pub fn into_condition(self) -> Condition {
        let changes = WatchStream::from_changes(self.leadership()).map(drop);
        Condition::new(move || self.lease().is_some(), changes)
    }

    /// Waits until this process leads. Fails when the election has ended.
    pub async fn elected(&mut self) -> Result<Lease, Error> {
        loop {
            let lease =
                self.leadership.borrow_and_update().lease().filter(|lease| lease.is_current()).cloned();
            if let Some(lease) = lease {
                return Ok(lease);
            }
            self.leadership.changed().await.map_err(|_closed| Error::Ended)?;
        }
    }
}

impl Drop for Candidacy {
    fn drop(&mut self) {
        self.left.cancel();
        self.election.shared.names().remove(&self.name);
        self.election.shared.wake.notify_one();
    }
}

/// One candidacy, in the loop.
#[derive(Debug)]
struct Member {
    name: String,
    key: Key,
    /// Who we are to Redis; random, so that no two candidacies are ever taken for one.
    token: String,
    candidate: Candidate,
    leadership: watch::Sender<Leadership>,
    /// Cancelled when the candidacy is dropped.
    left: CancellationToken,
}

struct ElectionLoop {
    stores: Arc<Stores>,
    shared: Arc<Shared>,
    concurrency: usize,
    /// Members with nothing to do until the elapsed they are filed under; the token keeps them apart.
    waiting: BTreeMap<(Elapsed, String), Member>,
    /// Members that wait for answers; those that left come back as none.
    running: FuturesUnordered<BoxFuture<'static, Option<Member>>>,
}

// Not a `kit::worker`: one event loop over entering members, answers, wake-ups and due times.
impl ElectionLoop {
    async fn run(mut self, mut entered: mpsc::UnboundedReceiver<Member>, shutdown: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        loop {
            self.start_due();
            let has_room = self.running.len() < self.concurrency;
            let next = self.waiting.keys().next().map(|(elapsed, _)| shared.instant(*elapsed));
            tokio::select! {
                () = shutdown.cancelled() => break,
                member = entered.recv() => match member {
                    Some(member) => self.schedule(member),
                    // The election and all candidacies are gone.
                    None => break,
                },
                Some(member) = self.running.next() => member.into_iter().for_each(|member| self.schedule(member)),
                () = shared.wake.notified() => self.wake_pending(),
                () = sleep_until(next), if has_room => {}
            }
        }
        self.end(entered).await;
    }

    /// Begins the running that are due, as far as there is room.
    fn start_due(&mut self) {
        let now = self.shared.base.elapsed();
        while self.running.len() < self.concurrency {
            match self.waiting.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let member = first.remove();
                    self.start(member);
                }
                Some(_) | None => return,
            }
        }
    }

    fn start(&mut self, member: Member) {
        let (stores, shared) = (Arc::clone(&self.stores), Arc::clone(&self.shared));
        self.running.push(Box::pin(member.advance(stores, shared)));
    }

    /// Files a member under the elapsed when it has something to do.
    fn schedule(&mut self, mut member: Member) {
        let now = self.shared.base.elapsed();
        let until = match member.next_action(now) {
            LeaseAction::Wait { until } if !member.left.is_cancelled() => until,
            _ => now,
        };
        self.waiting.insert((until, member.token.clone()), member);
    }

    /// Members that left or were fenced have something to do now.
    fn wake_pending(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        for (place, member) in waiting {
            if member.needs_attention() {
                self.schedule(member);
            } else {
                self.waiting.insert(place, member);
            }
        }
    }

    /// Gives every lease back. Each step is bounded, and with it the whole.
    async fn end(mut self, mut entered: mpsc::UnboundedReceiver<Member>) {
        entered.close();
        while let Some(member) = entered.recv().await {
            self.schedule(member);
        }
        // Nobody begins anything new.
        for member in self.waiting.values() {
            member.left.cancel();
        }
        while !self.waiting.is_empty() || !self.running.is_empty() {
            while self.running.len() < self.concurrency
                && let Some((_, member)) = self.waiting.pop_first()
            {
                self.start(member);
            }
            if let Some(Some(member)) = self.running.next().await {
                member.left.cancel();
                self.schedule(member);
            }
        }
    }
}

impl Member {
    /// Asks until there is nothing to ask for a while, and tells what came of it. Who left gives its lease back and does
    /// not return.
    async fn advance(mut self, stores: Arc<Stores>, shared: Arc<Shared>) -> Option<Self> {
        loop {
            if self.left.is_cancelled() {
                self.release(&stores).await;
                return None;
            }
            let begun = shared.base.elapsed();
            let action = self.next_action(begun);
            self.publish(&shared, begun);
            if matches!(action, LeaseAction::Wait { .. }) {
                return Some(self);
            }
            let answer = stores.perform(action, &self.name, &self.key, &self.token).await;
            let now = shared.base.elapsed();
            self.candidate.apply(begun, answer, now, rand::rng().random_range(0..=1_000));
            self.publish(&shared, now);
        }
    }

    fn next_action(&mut self, now: Elapsed) -> LeaseAction {
        if let Some(epoch) = self.fenced_epoch() {
            self.candidate.fenced(epoch, now);
        }
        self.candidate.next_action(now)
    }

    /// Makes the leadership that others see what the candidate knows.
    fn publish(&self, shared: &Shared, now: Elapsed) {
        let tenure = self.candidate.tenure(now);
        let published = self.leadership.borrow().lease().cloned();
        match (published, tenure) {
            (Some(lease), Some(tenure)) if lease.epoch() == tenure.epoch => {
                lease.extend(shared.instant(tenure.held_until));
            }
            (_, Some(tenure)) => {
                tracing::info!(lease = self.name, epoch = tenure.epoch, "lease taken");
                let until = shared.instant(tenure.held_until);
                let lease = Lease::new(self.name.clone(), tenure.epoch, until, Arc::clone(&shared.wake));
                self.leadership.send_replace(Leadership::Leader(lease));
            }
            (Some(lease), None) => {
                tracing::info!(lease = self.name, epoch = lease.epoch(), "lease lost");
                self.leadership.send_replace(Leadership::Follower);
            }
            (None, None) => {}
        }
    }

    async fn release(&self, stores: &Stores) {
        // First of all nobody here may act on it any more.
        self.leadership.send_replace(Leadership::Follower);
        if let Err(error) = stores.release(&self.key, &self.token).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, lease = self.name, "failed to give a lease back; it will run out");
        }
    }

    fn needs_attention(&self) -> bool {
        self.left.is_cancelled() || self.fenced_epoch().is_some()
    }

    fn fenced_epoch(&self) -> Option<i64> {
        self.leadership.borrow().lease().filter(|lease| lease.is_fenced()).map(Lease::epoch)
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
