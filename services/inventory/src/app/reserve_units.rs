//! `ReserveUnits`: grpc → app → engine::proposals → store::pools → app::reserve_units::write_holds → store → engine.
//! Reservations of a batch share one transaction. The primary key of `hold_unit` makes proposed units the hold's; a conflict
//! shows that a proposal was wrong, so the pool is repaired and other units are tried.

mod invited;
mod write_holds;

use std::sync::Arc;

use onsale_kit::{
    batcher::{BatchOutcome, Batcher, Processor},
    deadline::Deadline,
    tasks::Tasks,
};
use onsale_storage::postgres;
use onsale_types::SectorId;

use super::App;
use crate::{
    config::BatchesConfig,
    domain::{
        commands::ReserveUnits,
        event::{Event, Sector},
        hold::{Hold, UnitChoice, check_selections},
        pick::pick,
        results::Reservation,
    },
    engine::{Engine, RepairReason, ReserveItem, TolerantWrites, failed_batch},
    error::{self, Error},
    metrics,
};

/// Attempts of one call. An attempt fails if another call took its units, so that some customer was served, or if its pool was wrong.
const ATTEMPTS_MAX: u32 = 16;
/// Attempts with the pool. After these conflicts the pool is considered wrong, and units come from the view.
const POOL_ATTEMPTS_MAX: u32 = 3;

/// The outcome of a reservation that was not refused.
#[derive(Debug)]
enum ReserveOutcome {
    /// A new hold, or the one of a repeated request. The calling task builds the response: memory that one task allocates and
    /// frees stays in its thread's cache, unlike memory that a batch allocates for all its callers.
    Hold { event: Arc<Event>, hold: Hold },
    /// The proposed units were not free.
    Retry(Vec<ShortSector>),
}

/// A sector in which a reservation got no units, although enough may be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShortSector {
    sector_id: SectorId,
    reason: RepairReason,
}

/// Collects reservations into batches.
pub(super) struct ReserveBatcher {
    batcher: Batcher<ReserveItem, ReserveOutcome, Error>,
}

struct ReserveProcessor {
    engine: Arc<Engine>,
    tolerant_writes: TolerantWrites,
}

impl ReserveBatcher {
    pub(super) fn new(engine: &Arc<Engine>, config: &BatchesConfig, tasks: &Tasks) -> Self {
        let tolerant_writes = TolerantWrites::default();
        let processor = ReserveProcessor { engine: Arc::clone(engine), tolerant_writes };
        Self { batcher: Batcher::new("reserve", config.batcher(), processor, tasks) }
    }
}

impl App {
    /// Holds all selected units, or none.
    pub(crate) async fn reserve_units(&self, command: ReserveUnits) -> Result<Reservation, Error> {
        if let Some(token) = &command.invitation_token {
            return Box::pin(self.reserve_invited(&command, token.expose())).await;
        }
        let offer = self.engine.offer(command.event_id).await?;
        let sectors = check_selections(&offer, offer.units_per_customer_max, &command.selections)
            .map_err(error::selection)?;
        let command = Arc::new(command);
        for attempt in 0..ATTEMPTS_MAX {
            if Deadline::current().is_some_and(|deadline| deadline.is_past()) {
                break;
            }
            let item = ReserveItem {
                command: Arc::clone(&command),
                offer: Arc::clone(&offer),
                uses_pool: attempt < POOL_ATTEMPTS_MAX,
            };
            match self.reserve.batcher.submit(item).await? {
                ReserveOutcome::Hold { event, hold } => {
                    return Ok(Reservation { event, offer: Arc::clone(&offer), hold });
                }
                ReserveOutcome::Retry(short) => {
                    metrics::conflicted();
                    Box::pin(self.correct(&command, &sectors, &short)).await?;
                }
            }
        }
        Err(Error::Contended)
    }

    /// Repairs the pools after a conflict. Returns an error if the customer chose a unit that is taken.
    async fn correct(
        &self,
        command: &ReserveUnits,
        sectors: &[&Sector],
        short: &[ShortSector],
    ) -> Result<(), Error> {
        for (sector, selection) in sectors.iter().zip(&command.selections) {
            let Some(short) = short.iter().find(|short| short.sector_id == sector.id) else { continue };
            match &selection.choice {
                UnitChoice::Count(_) => {
                    self.engine.repair_pool(command.event_id, sector, short.reason).await?;
                }
                UnitChoice::Units(units) => self.check_free(sector, units).await?,
            }
        }
        Ok(())
    }

    /// Returns an error if some of `units` are taken. They may be free again, or have been refused to another call as well.
    async fn check_free(&self, sector: &Sector, units: &[u32]) -> Result<(), Error> {
        let free = self.engine.fresh_view(sector).await?;
        let taken: Vec<u32> = units.iter().copied().filter(|unit| !free.contains(*unit)).collect();
        if taken.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(units.len()).unwrap_or(u32::MAX);
        let alternatives = pick(sector.layout.as_ref(), &free, count).unwrap_or_default();
        Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives })
    }
}

impl Processor<ReserveItem> for ReserveProcessor {
    type Output = ReserveOutcome;
    type Error = Error;

    async fn process(&self, items: &[ReserveItem]) -> BatchOutcome<ReserveOutcome, Error> {
        let proposals = self.engine.propose(items).await;
        match self.write_holds(items, &proposals).await {
            Ok(written) => {
                self.apply_written(items, &proposals, &written).await;
                BatchOutcome::Answered(written.answers)
            }
            Err(error) => {
                // After a commit of unknown outcome the units stay out of the pools; the reconciler returns them if they are
                // free.
                if !matches!(error, Error::Postgres(postgres::Error::CommitUnknown { .. })) {
                    self.return_units(items, &proposals, |_, _| true).await;
                }
                failed_batch(error)
            }
        }
    }
}
