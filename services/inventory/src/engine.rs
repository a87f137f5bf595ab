//! Machinery behind the use cases: copies in memory, pools in Redis, and the work that several use cases share.
//!
//! ```text
//!  reserve   proposals ── take, under pool_locks (shared) ──▶ pools in Redis
//!                │  └──── else pick ─────────────────────────▶ views in memory
//!                └─▶ in_flight ─▶ insert rows in Postgres ─▶ after the commit: views, pools
//!
//!  end       end_holds ─▶ Postgres, with quota_holds and sale_state ─▶ after the commit: views, pools
//!
//!  repair    pool_repair ── compare, under pool_locks (exclusive) ──▶ pools, in_flight, fresh views
//!                └─▶ corrects pools
//!
//!  read      watches ─▶ availability ─▶ counts in Postgres, views
//! ```
//!
//! - [`pools`](crate::store::pools) offer units and may be wrong. Only a row in Postgres assigns a unit to a hold or a quota.
//! - `in_flight` keeps calls of this process from picking the same units; `views` are copies of the free units in Postgres.
//! - After a commit, pools and views follow it. If the process dies before, `pool_repair` corrects the pools.
//! - `catalog` has the sectors of public events for all of them.

mod availability;
mod catalog;
mod coalesce;
mod end_holds;
mod in_flight;
mod invitation_tokens;
mod pool_locks;
mod pool_repair;
mod proposals;
mod quota_holds;
mod quota_units;
mod sale_state;
mod tolerant_writes;
mod views;
mod watches;

use std::sync::Arc;

use onsale_kit::{
    batcher::BatchOutcome,
    error::{Kind, ServiceError},
    tasks::Tasks,
};
use onsale_storage::{Stores, postgres::Transaction, redis};
use onsale_types::{EventId, SectorId, Timestamp};

pub(crate) use self::{
    availability::check_sectors,
    end_holds::EndHoldBatcher,
    invitation_tokens::{InvitationClaims, InvitationTokens},
    pool_repair::{Difference, RepairReason},
    proposals::{Origin, Proposal, Proposals, ReserveItem},
    quota_units::QuotaUnits,
    tolerant_writes::TolerantWrites,
    views::StockChange,
    watches::AvailabilityWatcher,
};
use self::{
    catalog::Catalog, coalesce::Coalesce, in_flight::InFlight, pool_locks::PoolLocks, views::Views,
    watches::Watches,
};
use crate::{
    config::Config,
    domain::{availability::Availability, event::Event, unit_set::UnitSet},
    error::Error,
    store::{self, keys::Keys, pools::Pools},
};

/// State and machinery that the use cases of this process share.
pub(crate) struct Engine {
    pub(crate) stores: Stores,
    pub(crate) pools: Pools,
    pub(crate) views: Views,
    pub(crate) invitation_tokens: InvitationTokens,
    catalog: Catalog,
    in_flight: InFlight,
    pool_locks: PoolLocks,
    /// Reads of a sector's free units: one at a time per sector, shared by all callers.
    view_reads: Coalesce<SectorId, Arc<UnitSet>>,
    /// Repairs of pools: one at a time per sector and reason, shared by all callers.
    repairs: Coalesce<(SectorId, RepairReason), ()>,
    /// Reads of an event's availability: one at a time per event, shared by all callers.
    availability_reads: Coalesce<EventId, Arc<Availability>>,
    watches: Watches,
    pub(crate) tasks: Tasks,
}

impl Engine {
    pub(crate) fn new(
        config: &Config,
        stores: Stores,
        invitation_tokens: InvitationTokens,
        service: &str,
        tasks: &Tasks,
    ) -> Result<Self, redis::Error> {
        let keys = Keys::new(stores.redis.keyspace(service)?);
        Ok(Self {
            pools: Pools::new(stores.redis.clone(), keys, &config.pool),
            stores,
            views: Views::default(),
            invitation_tokens,
            catalog: Catalog::default(),
            in_flight: InFlight::default(),
            pool_locks: PoolLocks::default(),
            view_reads: Coalesce::default(),
            repairs: Coalesce::default(),
            availability_reads: Coalesce::default(),
            watches: Watches::new(config.availability.watch_every),
            tasks: tasks.clone(),
        })
    }
}

/// Returns the event and the database's time.
pub(crate) async fn event_now(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<(Event, Timestamp), Error> {
    store::events::find_now(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })
}

/// Decides the outcome of a batch whose transaction failed. Only an unexpected error can be the fault of a single item, so only
/// then is the batch split.
pub(crate) fn failed_batch<R>(error: Error) -> BatchOutcome<R, Error> {
    match error.kind() {
        Kind::Internal => BatchOutcome::Suspect(error),
        _ => BatchOutcome::Failed(error),
    }
}
