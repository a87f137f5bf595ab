//! The use cases of Queue, one file per RPC, job or event: load, decide, save, publish. Machinery that they share is in
//! `engine`.

pub(crate) mod admit_customers;
pub(crate) mod apply_inventory_update;
pub(crate) mod block_customer;
pub(crate) mod claim_released;
pub(crate) mod close_queue;
pub(crate) mod complete_turn;
pub(crate) mod expire_entries;
pub(crate) mod get_position;
pub(crate) mod get_queue_snapshot;
pub(crate) mod get_queue_stats;
pub(crate) mod join_queue;
pub(crate) mod leave_queue;
pub(crate) mod list_neighbors;
pub(crate) mod open_due_queues;
pub(crate) mod open_queue;
pub(crate) mod order_completed;
pub(crate) mod pause_queue;
pub(crate) mod push_milestones;
pub(crate) mod reconcile_lines;
pub(crate) mod resume_queue;
pub(crate) mod slide_windows;
pub(crate) mod unblock_customer;
pub(crate) mod update_queue_policy;
pub(crate) mod validate_turn;
pub(crate) mod watch_queue;
pub(crate) mod watch_queue_stats;

use std::{future::Future, sync::Arc};

use onsale_kit::batcher::{Batcher, BatcherConfig};
use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{Clock, EventId, Named as _, OrganizerId, Timestamp};
use parking_lot::Mutex;

use self::{
    get_queue_stats::StatsCache, join_queue::JoinBatcher, push_milestones::CheckedRevisions,
    validate_turn::CheckTurnProcessor,
};
use crate::{
    clients::inventory::Inventory,
    config::{AdmissionConfig, JoinConfig, SweepConfig},
    domain::{
        queue::QueueAndLine,
        queue_change::QueueChange,
        turn::{TurnCheck, TurnKey},
    },
    engine::Engine,
    error::Error,
    store::{lines, queues},
};

/// Queues that one round of a job works on at a time.
const EVENTS_CONCURRENCY: usize = 8;

/// The state that handlers, consumers and workers share.
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    inventory: Inventory,
    admission: AdmissionConfig,
    sweep: SweepConfig,
    joins: JoinBatcher,
    /// Turn checks of single callers, looked up in batches.
    turn_checks: Batcher<TurnKey, (TurnCheck, Timestamp), Error>,
    stats: StatsCache,
    checked_revisions: CheckedRevisions,
}

/// The arguments of [`App::new`].
pub(crate) struct AppParts {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inventory: Inventory,
    pub(crate) admission: AdmissionConfig,
    pub(crate) sweep: SweepConfig,
    pub(crate) join: JoinConfig,
}

impl App {
    /// Puts the parts together and starts the batchers.
    pub(crate) fn new(parts: AppParts) -> Arc<Self> {
        let AppParts { engine, clock, inventory, admission, sweep, join } = parts;
        let check = CheckTurnProcessor(engine.stores.postgres.clone());
        let turn_checks = Batcher::new("checking", BatcherConfig::default(), check, &engine.tasks);
        Arc::new(Self {
            joins: JoinBatcher::new(&engine, &join),
            engine,
            clock,
            inventory,
            admission,
            sweep,
            turn_checks,
            stats: StatsCache::default(),
            checked_revisions: CheckedRevisions::default(),
        })
    }

    /// Returns the time of this pod. It only checks the form of requests; every decision uses the database's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Makes a change once, however often the request is repeated, and publishes it after the commit.
    async fn change_once<R, F>(
        &self,
        label: &'static str,
        request: &Request<'_, R>,
        work: impl Fn(Transaction) -> F,
    ) -> Result<Answer<R>, Error>
    where
        F: Future<Output = Result<(R, Option<QueueChange>), Error>>,
    {
        let committed = Mutex::new(None);
        let (change, work) = (&committed, &work);
        let once = |transaction: Transaction| async move {
            let result = async {
                let (result, new_change) = work(transaction.clone()).await?;
                *change.lock() = new_change;
                Ok::<R, Error>(result)
            };
            request.once(&transaction, result).await
        };
        let answer = self.engine.stores.postgres.transaction(label, once).await?;
        // A repeated request has no change.
        if let Some(change) = committed.into_inner() {
            self.engine.publish(change).await;
        }
        Ok(answer)
    }

    /// Applies an organizer's control to the queue of an event of theirs.
    async fn control_queue(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        request: &Request<'_, QueueAndLine>,
        control: impl Fn(&mut QueueAndLine) -> Result<(), Error>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let control = &control;
        let work = |transaction: Transaction| async move {
            let mut current = lines::lock(&transaction, event_id, &self.engine.defaults).await?;
            current.queue.check_owner(organizer_id)?;
            control(&mut current)?;
            current.line.bump_revision();
            queues::save(&transaction, &current.queue).await?;
            lines::save(&transaction, event_id, &current.line).await?;
            let state = current.queue.state.name();
            tracing::info!(%event_id, %organizer_id, state, "queue controlled by its organizer");
            let change = QueueChange::controlled(&current);
            Ok((current, Some(change)))
        };
        let answer = self.change_once("control queue", request, work).await?;
        // The control may allow further admissions.
        self.engine.slot_freed.notify_one();
        Ok(answer)
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").finish_non_exhaustive()
    }
}
