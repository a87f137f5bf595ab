//! `ReserveUnits`: Redis proposes units, a primary key in Postgres makes them the hold's. A conflict means that the
//! proposal was wrong: Redis is corrected and other units are tried.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use onsale_kit::deadline::Deadline;
use onsale_proto::inventory::v1 as pb;
use onsale_storage::{
    idempotency::{self, Request},
    postgres::{self, Transaction},
};
use onsale_types::{CustomerId, EventId, HoldId, SectorId};

use super::{
    App,
    propose::{Origin, Proposal},
};
use crate::{
    convert,
    domain::{
        event::Sector,
        hold::{Hold, HoldItem, Selection, Wanted, check_selections},
        pick::pick,
    },
    error::Error,
    metrics, store,
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
    /// Whether the units are to come from a quota.
    pub has_invitation: bool,
}

/// Fewer units are free than asked for.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    sector_id: SectorId,
    free_count: u32,
}

/// Why no hold was written.
enum Halt {
    /// These units are another's.
    Taken(Vec<(SectorId, u32)>),
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<postgres::Error> for Halt {
    fn from(error: postgres::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl From<idempotency::Error> for Halt {
    fn from(error: idempotency::Error) -> Self {
        Self::Failed(error.into())
    }
}

impl App {
    /// Sets units aside, all or none.
    pub async fn reserve_units(
        &self,
        request: &Request<'_>,
        command: &ReserveUnits,
    ) -> Result<pb::ReserveUnitsResponse, Error> {
        if command.has_invitation {
            // There are no quotas yet, so nobody can have been invited.
            return Err(Error::InvitationTokenInvalid);
        }
        let offer = self.offer(command.event_id).await?;
        let sectors = check_selections(&offer.sectors, offer.units_per_customer_max, &command.selections)
            .map_err(convert::selection_fault)?;
        for attempt in 0..ATTEMPTS_MAX {
            if Deadline::current().is_some_and(|deadline| deadline.is_past()) {
                break;
            }
            let proposed = self.propose_all(command, &sectors, attempt < REDIS_ATTEMPTS_MAX).await?;
            let proposals = proposed.as_deref().unwrap_or_default();
            match self.write_hold(request, command, &sectors, proposed.as_deref().map_err(|it| *it)).await {
                Ok((response, true)) => {
                    self.settle(command.event_id, proposals).await;
                    return Ok(response);
                }
                Ok((response, false)) => {
                    self.hand_back(command.event_id, proposals, &[]).await;
                    return Ok(response);
                }
                Err(Halt::Failed(error)) => {
                    // Where the commit may have happened, they stay out until the reconciler has looked.
                    if !matches!(error, Error::Postgres(postgres::Error::CommitUnknown { .. })) {
                        self.hand_back(command.event_id, proposals, &[]).await;
                    }
                    return Err(error);
                }
                Err(Halt::Taken(taken)) => {
                    metrics::conflicted();
                    self.hand_back(command.event_id, proposals, &taken).await;
                    // Out of flight before anybody looks what is free.
                    drop(proposed);
                    self.correct(command, &sectors, &taken).await?;
                }
            }
        }
        Err(Error::Contended)
    }

    /// Units for all selections, or what is short.
    async fn propose_all(
        &self,
        command: &ReserveUnits,
        sectors: &[&Sector],
        ask_redis: bool,
    ) -> Result<Result<Vec<Proposal>, Shortage>, Error> {
        let mut proposals = Vec::with_capacity(sectors.len());
        for (sector, selection) in sectors.iter().zip(&command.selections) {
            match self.propose(command.event_id, sector, &selection.wanted, ask_redis).await {
                Ok(proposal) => proposals.push(proposal),
                Err(error) => {
                    self.hand_back(command.event_id, &proposals, &[]).await;
                    return match error {
                        Error::NotEnoughUnits { sector_id, free_count } => {
                            Ok(Err(Shortage { sector_id, free_count }))
                        }
                        error => Err(error),
                    };
                }
            }
        }
        Ok(Ok(proposals))
    }

    /// Writes the hold with the proposed units. True with a new hold; false when this was asked before, and the answer is
    /// the one from then. That comes first: a repeat must be answered also when nothing is left.
    async fn write_hold(
        &self,
        request: &Request<'_>,
        command: &ReserveUnits,
        sectors: &[&Sector],
        proposed: Result<&[Proposal], Shortage>,
    ) -> Result<(pb::ReserveUnitsResponse, bool), Halt> {
        let items = match proposed {
            Ok(proposals) => Ok(items_of(sectors, proposals)?),
            Err(shortage) => Err(shortage),
        };
        let (items, is_new) = (&items, &AtomicBool::new(false));
        let response = self
            .stores
            .postgres
            .transaction("reserve units", |tx| async move {
                is_new.store(false, Ordering::Relaxed);
                idempotency::once(&tx, request, async {
                    let items = items.as_ref().map(Vec::as_slice).map_err(|shortage| *shortage);
                    let (response, is_inserted) = insert_hold(&tx, command, items).await?;
                    is_new.store(is_inserted, Ordering::Relaxed);
                    Ok::<_, Halt>(response)
                })
                .await
            })
            .await?;
        Ok((response, is_new.load(Ordering::Relaxed)))
    }

    /// What was reserved without asking the pools goes out of them.
    async fn settle(&self, event_id: EventId, proposals: &[Proposal]) {
        for Proposal { flight, origin } in proposals {
            if *origin != Origin::Redis {
                self.pools.take_out(event_id, flight.sector_id, &flight.units).await;
            }
        }
    }

    /// What was taken out of the pools in vain goes back, but for `taken`.
    async fn hand_back(&self, event_id: EventId, proposals: &[Proposal], taken: &[(SectorId, u32)]) {
        for Proposal { flight, origin } in proposals {
            if *origin == Origin::Redis {
                let is_free = |unit: &u32| !taken.contains(&(flight.sector_id, *unit));
                let free: Vec<u32> = flight.units.iter().copied().filter(is_free).collect();
                self.pools.put_back(event_id, flight.sector_id, &free).await;
            }
        }
    }

    /// After a conflict: an error when the customer insisted on a unit that is taken, else the pools are set right.
    async fn correct(
        &self,
        command: &ReserveUnits,
        sectors: &[&Sector],
        taken: &[(SectorId, u32)],
    ) -> Result<(), Error> {
        for (sector, selection) in sectors.iter().zip(&command.selections) {
            let taken: Vec<u32> = taken
                .iter()
                .filter(|(sector_id, _)| *sector_id == sector.id)
                .map(|(_, unit)| *unit)
                .collect();
            if taken.is_empty() {
                continue;
            }
            let free = self.refill(command.event_id, sector, 0).await?;
            if let Wanted::Units(units) = &selection.wanted {
                let count = u32::try_from(units.len()).unwrap_or(u32::MAX);
                let alternatives = pick(sector.layout.as_ref(), &free, count).unwrap_or_default();
                return Err(Error::UnitsTaken { sector_id: sector.id, taken, alternatives });
            }
        }
        Ok(())
    }
}

fn items_of(sectors: &[&Sector], proposals: &[Proposal]) -> Result<Vec<HoldItem>, Error> {
    let each = sectors.iter().zip(proposals);
    Ok(each.map(|(sector, it)| HoldItem::new(sector, &it.flight.units)).collect::<Result<_, _>>()?)
}

/// The hold and its units in `tx`; false when the hold was there before.
async fn insert_hold(
    tx: &Transaction,
    command: &ReserveUnits,
    items: Result<&[HoldItem], Shortage>,
) -> Result<(pb::ReserveUnitsResponse, bool), Halt> {
    let ReserveUnits { hold_id, event_id, customer_id, .. } = *command;
    let found = store::event::find_now(tx, event_id).await?;
    let (event, now) = found.ok_or(Error::EventNotFound { event_id })?;
    if let Some(hold) = store::hold::find(tx, hold_id).await? {
        return Ok((convert::reserved(&event, &same(command, hold)?), false));
    }
    if !event.is_selling_at(now) {
        let on_sale_time = event.details.on_sale_time.filter(|begin| *begin > now);
        return Err(Error::NotOnSale { state: event.state, on_sale_time }.into());
    }
    let items = items
        .map_err(|Shortage { sector_id, free_count }| Error::NotEnoughUnits { sector_id, free_count })?;
    let inserted =
        store::hold::insert(tx, hold_id, event_id, customer_id, items, command.release_after).await?;
    let Some(hold) = inserted else {
        // Made a moment ago by a call with another request id.
        let hold = store::hold::find(tx, hold_id).await?.ok_or(Error::HoldNotFound { hold_id })?;
        return Ok((convert::reserved(&event, &same(command, hold)?), false));
    };
    let units: Vec<_> = items.iter().map(|item| (item.sector_id, item.numbers())).collect();
    let taken = store::hold::insert_units(tx, hold_id, &units).await?;
    if taken.is_empty() { Ok((convert::reserved(&event, &hold), true)) } else { Err(Halt::Taken(taken)) }
}

/// The hold, if it is what `command` asks for.
fn same(command: &ReserveUnits, hold: Hold) -> Result<Hold, Error> {
    if hold.answers(command.event_id, command.customer_id, &command.selections) {
        Ok(hold)
    } else {
        Err(Error::HoldIdReused { hold_id: command.hold_id })
    }
}
