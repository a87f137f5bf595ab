//! `ReserveUnits`: Redis proposes units, a primary key in Postgres makes them the hold's. Reservations that arrive together
//! share one transaction. A conflict means that the proposal was wrong: Redis is corrected and other units are tried.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    batcher::{BatchOutcome, Batcher, Processor},
    config::Secret,
    deadline::Deadline,
    tasks::Tasks,
};
use onsale_proto::inventory::v1 as pb;
use onsale_storage::postgres;
use onsale_types::{CustomerId, EventId, HoldId, SectorId};

use super::{App, catalog::Offer, failed_batch, mend_pools::RepairReason};
use crate::{
    convert,
    domain::{
        event::{Event, Sector},
        hold::{Hold, Selection, UnitChoice, check_selections},
        pick::pick,
    },
    error::Error,
    metrics,
};

/// How often units are proposed for one call; each time others were faster, so each time somebody was served.
const ATTEMPTS_MAX: u32 = 16;
/// From here on Redis is not asked any more: what it says is not true.
const REDIS_ATTEMPTS_MAX: u32 = 3;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct ReserveUnits {
    /// The hold's id, made by the caller.
    pub hold_id: HoldId,
    /// The event.
    pub event_id: EventId,
    /// For whom.
    pub customer_id: CustomerId,
    /// Units of distinct sectors.
    pub selections: Vec<Selection>,
    /// When it is released by itself.
    pub release_after: Duration,
    /// The units are to come from the quota of this invitation. None: from the public sale.
    pub invitation_token: Option<Secret>,
    /// The revision of the event that the caller was told; 0: none.
    pub known_event_revision: u64,
}

/// One reservation of a batch.
#[derive(Debug)]
pub(super) struct ReserveItem {
    pub(super) command: Arc<ReserveUnits>,
    /// What the event offers; it has every sector that is selected.
    pub(super) offer: Arc<Offer>,
    /// Whether the pools are asked.
    pub(super) uses_pool: bool,
}

/// What became of a reservation that was not refused.
#[derive(Debug)]
pub(super) enum ReserveOutcome {
    /// There is a hold, made now or before. The answer's words are left to whoever asked: what a call makes and drops by itself
    /// stays in its thread's memory, and what a batch makes for all of its callers does not.
    Hold { event: Arc<Event>, hold: Hold },
    /// What was proposed was not to be had.
    Retry(Vec<ShortSector>),
}

/// A sector of which a reservation got nothing, though enough may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortSector {
    pub(super) sector_id: SectorId,
    /// What that says of the pool.
    pub(super) reason: RepairReason,
}

/// Takes reservations and hands them over in batches.
#[derive(Debug)]
pub struct Reservations {
    app: Arc<App>,
    batcher: Batcher<ReserveItem, ReserveOutcome, Error>,
}

struct ReserveProcessor {
    app: Arc<App>,
}

impl Reservations {
    /// With batches as the settings say.
    #[must_use]
    pub fn new(app: &Arc<App>, tasks: &Tasks) -> Self {
        let config = app.config.holds.batches.batcher();
        let batcher = Batcher::new("reserve", config, ReserveProcessor { app: Arc::clone(app) }, tasks);
        Self { app: Arc::clone(app), batcher }
    }

    /// Sets units aside, all or none.
    pub async fn reserve_units(&self, command: ReserveUnits) -> Result<pb::ReserveUnitsResponse, Error> {
        if let Some(token) = &command.invitation_token {
            return Box::pin(self.app.reserve_invited(&command, token.expose())).await;
        }
        let offer = self.app.offer(command.event_id).await?;
        let sectors = check_selections(&offer.sectors, offer.units_per_customer_max, &command.selections)
            .map_err(convert::selection_fault)?;
        let command = Arc::new(command);
        for attempt in 0..ATTEMPTS_MAX {
            if Deadline::current().is_some_and(|deadline| deadline.is_past()) {
                break;
            }
            let item = ReserveItem {
                command: Arc::clone(&command),
                offer: Arc::clone(&offer),
                uses_pool: attempt < REDIS_ATTEMPTS_MAX,
            };
            match self.batcher.submit(item).await? {
                ReserveOutcome::Hold { event, hold } => {
                    return convert::reserved(&event, &offer.sectors, &hold, command.known_event_revision);
                }
                ReserveOutcome::Retry(short) => {
                    metrics::conflicted();
                    Box::pin(self.app.correct(&command, &sectors, &short)).await?;
                }
            }
        }
        Err(Error::Contended)
    }
}

impl ReserveItem {
    /// Each selection with its sector.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&Sector, &UnitChoice)> {
        let sectors = &self.offer.sectors;
        self.command.selections.iter().filter_map(|selection| {
            let sector = sectors.iter().find(|sector| sector.id == selection.sector_id)?;
            Some((sector, &selection.choice))
        })
    }
}

impl Processor<ReserveItem> for ReserveProcessor {
    type Output = ReserveOutcome;
    type Error = Error;

    async fn process(&self, items: &[ReserveItem]) -> BatchOutcome<ReserveOutcome, Error> {
        let app = &self.app;
        let proposals = app.propose(items).await;
        match app.write_holds(items, &proposals).await {
            Ok(written) => {
                app.settle(items, &proposals, &written).await;
                BatchOutcome::Answered(written.answers)
            }
            Err(error) => {
                // Where the commit may have happened, they stay out until the reconciler has looked.
                if !matches!(error, Error::Postgres(postgres::Error::CommitUnknown { .. })) {
                    app.return_units(items, &proposals, |_, _| true).await;
                }
                failed_batch(error)
            }
        }
    }
}

impl App {
    /// After a conflict: an error when the customer insists on a unit that is taken, else the pools are set right.
    async fn correct(
        &self,
        command: &ReserveUnits,
        sectors: &[&Sector],
        short: &[ShortSector],
    ) -> Result<(), Error> {
        let event_id = command.event_id;
        for (sector, selection) in sectors.iter().zip(&command.selections) {
            let Some(miss) = short.iter().find(|miss| miss.sector_id == sector.id) else { continue };
            match &selection.choice {
                UnitChoice::Count(_) => self.repair_pool(event_id, sector, miss.reason).await?,
                UnitChoice::Units(units) => self.check_free(sector, units).await?,
            }
        }
        Ok(())
    }

    /// An error when some of the units are taken. They may have come back, or been wanted by another who got none either.
    async fn check_free(&self, sector: &Sector, units: &[u32]) -> Result<(), Error> {
        let free = self.fresh_view(sector).await?;
        let taken: Vec<u32> = units.iter().copied().filter(|unit| !free.contains(*unit)).collect();
        if taken.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(units.len()).unwrap_or(u32::MAX);
        let alternatives = pick(sector.layout.as_ref(), &free, count).unwrap_or_default();
        Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives })
    }
}
