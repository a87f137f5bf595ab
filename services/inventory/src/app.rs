//! What Inventory does: one file per method or job, each loads, decides and saves, and owns its transaction.

mod activate_event;
mod availability;
mod catalog;
mod coalesce;
mod create_event;
mod end_event;
mod end_holds;
mod get_event;
mod in_flight;
mod list_events;
mod mend_pools;
mod pool_locks;
mod propose;
mod quota;
mod reconcile;
mod record_generation;
mod reserve_invited;
mod reserve_units;
mod update_event;
mod views;
mod watch;
mod write_holds;

use std::{collections::HashSet, sync::Arc};

use onsale_kit::{
    batcher::BatchOutcome,
    error::{Kind, ServiceError},
    server::Chassis,
    tasks::Tasks,
};
use onsale_storage::{
    Stores,
    idempotency::{self, Request},
    postgres::Transaction,
    redis,
};
use onsale_types::{EventId, OrganizerId, SectorId};
use tokio::sync::OnceCell;

use self::{
    catalog::Catalog, coalesce::Coalesce, in_flight::InFlight, mend_pools::RepairReason,
    pool_locks::PoolLocks, views::Views, watch::Watches,
};
pub use self::{
    end_holds::EndHoldBatcher,
    list_events::{EventsPage, ListEvents},
    quota::{
        NewQuota,
        list::{ListQuotas, QuotasPage},
        tokens::InvitationTokens,
    },
    reserve_units::{Reservations, ReserveUnits},
    watch::AvailabilityWatcher,
};
use crate::{
    config::Config,
    domain::{
        availability::Availability,
        event::{Event, OwnershipError},
        unit_set::UnitSet,
    },
    error::Error,
    store::{self, keys::Keys, pause::Pause, pools::Pools},
};

/// What handlers, consumers and workers share.
pub struct App {
    config: Config,
    stores: Stores,
    pools: Pools,
    /// What never changes of events that are public.
    catalog: Catalog,
    /// Units that calls of this process are about to write.
    in_flight: InFlight,
    /// What Postgres said last of each sector.
    views: Views,
    /// Looks at the units of sectors: one at a time per sector, shared by all who ask.
    view_reads: Coalesce<SectorId, Arc<UnitSet>>,
    /// Who takes from the pools, and who looks at them.
    pool_locks: PoolLocks,
    /// While it lasts, reservations are written with care.
    careful: Pause,
    /// Pools being set right: one at a time per sector and cause, shared by all who need it.
    repairs: Coalesce<(SectorId, RepairReason), ()>,
    /// Looks at what is free: one at a time per event, shared by all who ask.
    availability_reads: Coalesce<EventId, Arc<Availability>>,
    watches: Watches,
    invitation_tokens: InvitationTokens,
    /// The time zones there are.
    time_zones: OnceCell<HashSet<String>>,
    tasks: Tasks,
}

impl App {
    /// On `stores`, with background work in the chassis' tasks.
    pub fn new(
        config: Config,
        stores: Stores,
        invitation_tokens: InvitationTokens,
        chassis: &Chassis,
    ) -> Result<Self, redis::Error> {
        let keys = Keys::new(stores.redis.keyspace(chassis.service())?);
        Ok(Self {
            pools: Pools::new(stores.redis.clone(), keys, &config.pool),
            catalog: Catalog::default(),
            in_flight: InFlight::default(),
            views: Views::default(),
            view_reads: Coalesce::default(),
            pool_locks: PoolLocks::default(),
            careful: Pause::default(),
            repairs: Coalesce::default(),
            availability_reads: Coalesce::default(),
            watches: Watches::default(),
            invitation_tokens,
            time_zones: OnceCell::new(),
            tasks: chassis.tasks().clone(),
            config,
            stores,
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The stores.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Does `work` in one transaction with its answer, unless the request was answered before. What it writes to the outbox
    /// is carried at once.
    async fn once<R, F>(
        &self,
        label: &'static str,
        request: &Request<'_>,
        work: impl Fn(Transaction) -> F,
    ) -> Result<R, Error>
    where
        R: prost::Message + Default,
        F: Future<Output = Result<R, Error>>,
    {
        let work = &work;
        let answer = self.stores.postgres.transaction(label, |transaction| async move {
            idempotency::once(&transaction, request, work(transaction.clone())).await
        });
        let answer = answer.await?;
        self.stores.outbox.wake_relay();
        Ok(answer)
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What becomes of a batch whose transaction failed: only an error that nobody expects can be one item's fault.
fn failed_batch<R>(error: Error) -> BatchOutcome<R, Error> {
    match error.kind() {
        Kind::Internal => BatchOutcome::Suspect(error),
        _ => BatchOutcome::Failed(error),
    }
}

/// The event, locked, if `organizer_id` may steer it.
async fn lock_own(
    transaction: &Transaction,
    event_id: EventId,
    organizer_id: OrganizerId,
) -> Result<Event, Error> {
    let event = store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
    check_own(&event, organizer_id)?;
    Ok(event)
}

/// Whether `organizer_id` may steer the event.
fn check_own(event: &Event, organizer_id: OrganizerId) -> Result<(), Error> {
    let event_id = event.id;
    match event.check_owner(organizer_id) {
        Ok(()) => Ok(()),
        Err(OwnershipError::NotFound) => Err(Error::EventNotFound { event_id }),
        Err(OwnershipError::NotOwner) => Err(Error::EventNotOwned { event_id }),
    }
}
