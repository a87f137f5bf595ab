//! Use cases: one file per method, job or event. Each loads, decides and saves, and owns its transaction.

mod accept_invitation;
mod activate_event;
mod commit_hold;
mod create_event;
mod create_quota;
mod end_event;
mod expire_holds;
mod get_availability;
mod get_event;
mod invite_to_quota;
mod list_events;
mod list_quotas;
mod reconcile_pools;
mod record_generation;
mod release_hold;
mod reserve_units;
mod return_quotas;
mod update_event;
mod watch_availability;

use std::{collections::HashSet, sync::Arc};

use onsale_kit::{BuildError, server::Chassis};
use onsale_storage::{
    Stores,
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{EventId, OrganizerId};
use tokio::sync::OnceCell;

use self::reserve_units::ReserveBatcher;
use crate::{
    config::Config,
    domain::event::{Event, OwnershipError},
    engine::{EndHoldBatcher, Engine, InvitationTokens},
    error::Error,
    store,
};

/// The use cases, shared by handlers, consumers and workers.
pub(crate) struct App {
    config: Arc<Config>,
    stores: Stores,
    engine: Arc<Engine>,
    reserve: ReserveBatcher,
    end_holds: EndHoldBatcher,
    /// Time zones that Postgres knows, read at first use.
    time_zones: OnceCell<HashSet<String>>,
}

impl App {
    /// Starts the batchers in the chassis' tasks.
    pub(crate) fn new(config: &Arc<Config>, stores: Stores, chassis: &Chassis) -> Result<Self, BuildError> {
        let (tokens, tasks) = (InvitationTokens::new(&config.invitations)?, chassis.tasks());
        let engine = Arc::new(Engine::new(config, stores.clone(), tokens, chassis.service(), tasks)?);
        Ok(Self {
            reserve: ReserveBatcher::new(&engine, &config.holds.batches, tasks),
            end_holds: EndHoldBatcher::new(&engine, &config.holds.batches, tasks),
            config: Arc::clone(config),
            stores,
            engine,
            time_zones: OnceCell::new(),
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Runs `work` and stores its answer in one transaction, or returns the stored answer of an earlier identical request.
    /// Wakes the relay, which publishes the events of `work`.
    async fn once<R, F>(
        &self,
        label: &'static str,
        request: &Request<'_, R>,
        work: impl Fn(Transaction) -> F,
    ) -> Result<Answer<R>, Error>
    where
        F: Future<Output = Result<R, Error>>,
    {
        let work = &work;
        let answer = self.stores.postgres.transaction(label, |transaction| async move {
            request.once(&transaction, work(transaction.clone())).await
        });
        let answer = answer.await?;
        self.stores.outbox.wake_relay();
        Ok(answer)
    }
}

/// Returns the event, locked, if `organizer_id` owns it.
async fn lock_own_event(
    transaction: &Transaction,
    event_id: EventId,
    organizer_id: OrganizerId,
) -> Result<Event, Error> {
    let event = store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
    check_owner(&event, organizer_id)?;
    Ok(event)
}

/// Refuses an organizer who does not own the event.
fn check_owner(event: &Event, organizer_id: OrganizerId) -> Result<(), Error> {
    let event_id = event.id;
    match event.check_owner(organizer_id) {
        Ok(()) => Ok(()),
        Err(OwnershipError::NotFound) => Err(Error::EventNotFound { event_id }),
        Err(OwnershipError::NotOwner) => Err(Error::EventNotOwned { event_id }),
    }
}
