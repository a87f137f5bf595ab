//! Quotas: units kept for a group, invitations to them, and their return to the public sale.
//!
//! Whoever changes a quota, its invitations or the units it keeps locks its row first. Holds are locked before quotas,
//! stock after them, the event last.

mod accept;
mod create;
mod invite;
pub(super) mod list;
mod return_units;
pub(super) mod settle;
pub(super) mod tokens;

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, SectorId, Timestamp};

use super::{App, views::StockChange};
use crate::{
    domain::{event::Event, hold::Selection},
    error::Error,
    store,
};

/// Most units that one command to Redis names.
const POOL_UNITS_MAX: usize = 1_000;

/// A quota as an organizer asks for it.
#[derive(Clone, Debug)]
pub struct NewQuota {
    /// The event.
    pub event_id: EventId,
    /// Name of the group.
    pub name: String,
    /// The sector, and how many units or which.
    pub selection: Selection,
    /// When unused units go to the public sale.
    pub return_time: Timestamp,
}

/// Units of a sector that changed by a commit.
struct QuotaUnits {
    event_id: EventId,
    sector_id: SectorId,
    /// Of the sector, after the commit.
    revision: u64,
    units: Vec<u32>,
}

impl App {
    /// What a quota keeps since a commit goes out of the view and the pool. Should we die before, the reconciler does it.
    async fn settle_kept(&self, moved: QuotaUnits) {
        let QuotaUnits { event_id, sector_id, revision, units } = moved;
        self.views.follow(sector_id, revision, StockChange { taken: units.clone(), freed: Vec::new() });
        for units in units.chunks(POOL_UNITS_MAX) {
            self.pools.take_out(event_id, sector_id, units).await;
        }
    }

    /// What a quota returned by a commit goes into the view and the pool.
    async fn settle_returned(&self, moved: QuotaUnits) {
        let QuotaUnits { event_id, sector_id, revision, units } = moved;
        self.views.follow(sector_id, revision, StockChange { taken: Vec::new(), freed: units.clone() });
        for units in units.chunks(POOL_UNITS_MAX) {
            self.pools.put_back(event_id, sector_id, units).await;
        }
    }
}

/// The event and the database's time.
pub(super) async fn event_now(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<(Event, Timestamp), Error> {
    store::events::find_now(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })
}
