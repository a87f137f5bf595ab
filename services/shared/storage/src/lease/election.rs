//! Event loop that runs all candidacies of a process: one task for any number of names, with a bounded number of calls
//! in flight.

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

/// Name part of every lease key. The name of the lease is the tag, which spreads the keys over the cluster.
const KEY_NAME: &str = "lease";

/// Candidacies of one process. Clones share them.
#[derive(Clone, Debug)]
pub struct Election {
    keys: Keyspace,
    /// Unbounded channel, but with at most one message per candidacy.
    new_members: mpsc::UnboundedSender<Member>,
    shared: Arc<Shared>,
    timing: Timing,
}

#[derive(Debug)]
struct Shared {
    names: Mutex<HashSet<String>>,
    /// Signals that a candidacy was dropped or fenced.
    wake: Arc<Notify>,
    /// Start of the candidates' clocks.
    base: Instant,
}

impl Election {
    /// Starts the event loop in `tasks`. At shutdown it releases every lease and ends.
    pub fn start(
        redis: &Redis,
        postgres: &Postgres,
        keys: &Keyspace,
        config: &LeaseConfig,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        config.validate()?;
        let (new_members, members) = mpsc::unbounded_channel();
        let stores = Stores {
            redis: redis.clone(),
            postgres: postgres.clone(),
            ttl: config.ttl,
            // A quarter of the `ttl`, so that a leader can retry before its lease ends.
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
        tasks.spawn("lease election", election.run(members, tasks.token()));
        let timing = Timing {
            ttl: config.ttl,
            margin: config.margin,
            renew_every: config.renew_every,
            try_every: config.try_every,
        };
        Ok(Self { keys: keys.clone(), new_members, shared, timing })
    }

    /// Becomes a candidate for `name` until the candidacy is dropped. The name must be valid in a key: no spaces or
    /// braces.
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
        // On failure the candidacy is dropped, which frees the name.
        self.new_members.send(member).map_err(|_closed| Error::Ended)?;
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

/// Candidacy of this process for one lease. Dropping it releases the lease.
#[derive(Debug)]
pub struct Candidacy {
    name: String,
    leadership: watch::Receiver<Leadership>,
    left: CancellationToken,
    /// Keeps the event loop alive.
    election: Election,
}

impl Candidacy {
    /// Returns the name of the lease.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a receiver of this process' role, which wakes at every change. A tenure that ends by failed renewals
    /// shows here with a delay; [`Lease::is_current`] reports it immediately.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Returns the lease if this process leads now.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.leadership.borrow().lease().filter(|lease| lease.is_current()).cloned()
    }

    /// Returns the condition that this process leads, for a worker. It holds the candidacy until the worker ends.
    pub(crate) fn into_condition(self) -> Condition {
        let changes = WatchStream::from_changes(self.leadership()).map(drop);
        Condition::new(move || self.lease().is_some(), changes)
    }

    /// Waits until this process leads. Fails once the election has ended.
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

/// State of one candidacy in the event loop.
#[derive(Debug)]
struct Member {
    name: String,
    key: Key,
    /// Value of the lease key in Redis. Random, so that no two candidacies are mistaken for each other.
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
    /// Members without an action to take, by the time of their next one. The token distinguishes members with equal
    /// times.
    waiting: BTreeMap<(Elapsed, String), Member>,
    /// Members with a call in flight. A member that left resolves to `None`.
    running: FuturesUnordered<BoxFuture<'static, Option<Member>>>,
}

// Not a `kit::worker`: one event loop over new members, answers, wake-ups and due times.
impl ElectionLoop {
    async fn run(mut self, mut members: mpsc::UnboundedReceiver<Member>, shutdown: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        loop {
            self.start_due();
            let has_room = self.running.len() < self.concurrency;
            let next = self.waiting.keys().next().map(|(elapsed, _)| shared.instant(*elapsed));
            tokio::select! {
                () = shutdown.cancelled() => break,
                member = members.recv() => match member {
                    Some(member) => self.schedule(member),
                    // The election and all candidacies were dropped.
                    None => break,
                },
                Some(member) = self.running.next() => member.into_iter().for_each(|member| self.schedule(member)),
                () = shared.wake.notified() => self.wake_pending(),
                () = sleep_until(next), if has_room => {}
            }
        }
        self.end(members).await;
    }

    /// Starts the members whose time has come, up to `concurrency`.
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

    /// Inserts a member into `waiting` at the time of its next action.
    fn schedule(&mut self, mut member: Member) {
        let now = self.shared.base.elapsed();
        let until = match member.next_action(now) {
            LeaseAction::Wait { until } if !member.left.is_cancelled() => until,
            _ => now,
        };
        self.waiting.insert((until, member.token.clone()), member);
    }

    /// Reschedules members that left or were fenced, so that they act immediately.
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

    /// Releases every lease. Each call has a timeout, so this ends in bounded time.
    async fn end(mut self, mut members: mpsc::UnboundedReceiver<Member>) {
        members.close();
        while let Some(member) = members.recv().await {
            self.schedule(member);
        }
        // Cancelled members only release their leases.
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
    /// Takes actions until the next one is a wait, and publishes every change of leadership. Returns `None` for a
    /// member that left, after releasing its lease.
    async fn advance(mut self, stores: Arc<Stores>, shared: Arc<Shared>) -> Option<Self> {
        loop {
            if self.left.is_cancelled() {
                self.release(&stores).await;
                return None;
            }
            let started = shared.base.elapsed();
            let action = self.next_action(started);
            self.publish(&shared, started);
            if matches!(action, LeaseAction::Wait { .. }) {
                return Some(self);
            }
            let answer = stores.perform(action, &self.name, &self.key, &self.token).await;
            let now = shared.base.elapsed();
            self.candidate.apply(started, answer, now, rand::rng().random_range(0..=1_000));
            self.publish(&shared, now);
        }
    }

    fn next_action(&mut self, now: Elapsed) -> LeaseAction {
        if let Some(epoch) = self.fenced_epoch() {
            self.candidate.fenced(epoch, now);
        }
        self.candidate.next_action(now)
    }

    /// Publishes the candidate's tenure to the receivers of [`Candidacy::leadership`].
    fn publish(&self, shared: &Shared, now: Elapsed) {
        let tenure = self.candidate.tenure(now);
        let published = self.leadership.borrow().lease().cloned();
        match (published, tenure) {
            (Some(lease), Some(tenure)) if lease.epoch() == tenure.epoch => {
                lease.extend(shared.instant(tenure.held_until));
            }
            (_, Some(tenure)) => {
                tracing::info!(lease = self.name, epoch = tenure.epoch, "lease acquired");
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
        // Stop local users of the lease before another process can take it.
        self.leadership.send_replace(Leadership::Follower);
        if let Err(error) = stores.release(&self.key, &self.token).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(
                error,
                lease = self.name,
                "failed to release a lease, it stays held until it expires"
            );
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
