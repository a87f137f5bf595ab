//! Writes the reservations of a batch in one transaction: first the units, then the holds that got all of their units, then the
//! counts. A hold that got only some of its units gives them back before the commit.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use onsale_storage::postgres::{self, Transaction};
use onsale_types::{EventId, HoldId, SectorId, Timestamp};

use super::{ReserveOutcome, ReserveProcessor, ShortSector};
use crate::{
    domain::{
        commands::ReserveUnits,
        counts::{self, Changes, Counts, CountsChange},
        event::Event,
        hold::{Hold, HoldItem, HoldState},
    },
    engine::{Origin, Proposal, Proposals, RepairReason, ReserveItem, StockChange},
    error::Error,
    store::{self, holds::HoldUnit},
};

/// The result of a batch.
pub(super) struct Written {
    /// One answer per item, in their order.
    pub(super) answers: Vec<Result<ReserveOutcome, Error>>,
    /// True for each item that has a new hold, in the order of the items.
    new: Vec<bool>,
    /// Units that other holds or quotas have.
    taken: HashSet<(SectorId, u32)>,
    /// The counts after the new holds.
    counts: HashMap<SectorId, Counts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// Copies all rows; one existing row fails the whole batch with a conflict.
    Optimistic,
    /// Skips existing rows. Costs Postgres about twice as much.
    Tolerant,
}

/// The events of a batch, each with the database's time.
type Events = HashMap<EventId, (Arc<Event>, Timestamp)>;

/// The holds to insert, in the order of the items. `None`: the item cannot get a hold.
type Candidates = Vec<Option<Hold>>;

impl ReserveProcessor {
    /// Writes the holds of the batch, optimistically if all units came from the pools.
    pub(super) async fn write_holds(
        &self,
        items: &[ReserveItem],
        proposals: &[Proposals],
    ) -> Result<Written, Error> {
        // Redis gives each unit to one call only. Units that customers choose, or that come from the view, may be chosen by
        // several calls.
        let is_ours = |proposal: &Proposal| proposal.origin == Origin::Pool;
        if !self.tolerant_writes.are_needed() && proposals.iter().flatten().flatten().all(is_ours) {
            match self.write_in(WriteMode::Optimistic, items, proposals).await {
                // Redis offered a taken unit, or the request repeats an existing hold.
                Err(Error::Postgres(postgres::Error::Conflict { .. })) => {
                    self.tolerant_writes.conflict_met();
                }
                written => return written,
            }
        }
        self.write_in(WriteMode::Tolerant, items, proposals).await
    }

    async fn write_in(
        &self,
        mode: WriteMode,
        items: &[ReserveItem],
        proposals: &[Proposals],
    ) -> Result<Written, Error> {
        let work = |transaction| async move { write(&transaction, mode, items, proposals).await };
        self.engine.stores.postgres.transaction("reserve units", work).await
    }

    /// Applies a committed batch to the pools and the views, and returns unused units to the pools.
    pub(super) async fn apply_written(
        &self,
        items: &[ReserveItem],
        proposals: &[Proposals],
        written: &Written,
    ) {
        let mut taken: BTreeMap<(EventId, SectorId), (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        for (index, (item, proposals)) in items.iter().zip(proposals).enumerate() {
            for proposal in proposals.iter().flatten().filter(|_| written.is_new(index)) {
                let key = (item.command.event_id, proposal.units_in_flight.sector_id);
                let (all, not_from_pool) = taken.entry(key).or_default();
                all.extend(&proposal.units_in_flight.units);
                if proposal.origin == Origin::Other {
                    not_from_pool.extend(&proposal.units_in_flight.units);
                }
            }
        }
        for ((event_id, sector_id), (all, not_from_pool)) in taken {
            if let Some(counts) = written.counts.get(&sector_id) {
                self.engine.views.apply(
                    sector_id,
                    counts.revision,
                    StockChange { taken: all, freed: Vec::new() },
                );
            }
            self.engine.pools.take_out(event_id, sector_id, &not_from_pool).await;
        }
        let is_unused =
            |index: usize, unit: (SectorId, u32)| !written.is_new(index) && !written.taken.contains(&unit);
        self.return_units(items, proposals, is_unused).await;
    }

    /// Returns those units to the pools that were taken from them and for which `is_unused` is true, given the item's index and
    /// the unit.
    pub(super) async fn return_units(
        &self,
        items: &[ReserveItem],
        proposals: &[Proposals],
        is_unused: impl Fn(usize, (SectorId, u32)) -> bool,
    ) {
        let mut units: BTreeMap<(EventId, SectorId), Vec<u32>> = BTreeMap::new();
        for (index, (item, proposals)) in items.iter().zip(proposals).enumerate() {
            for proposal in proposals.iter().flatten().filter(|it| it.origin == Origin::Pool) {
                let sector_id = proposal.units_in_flight.sector_id;
                let returned = proposal
                    .units_in_flight
                    .units
                    .iter()
                    .filter(|unit| is_unused(index, (sector_id, **unit)));
                units.entry((item.command.event_id, sector_id)).or_default().extend(returned);
            }
        }
        for ((event_id, sector_id), units) in units {
            self.engine.pools.put_back(event_id, sector_id, &units).await;
        }
    }
}

async fn write(
    transaction: &Transaction,
    mode: WriteMode,
    items: &[ReserveItem],
    proposals: &[Proposals],
) -> Result<Written, Error> {
    let events = store::events::find_all_now(transaction, &event_ids(items)).await?;
    let events = events.into_iter().map(|(id, (event, now))| (id, (Arc::new(event), now))).collect();
    let mut candidates = candidates(items, proposals, &events);
    let lost = match mode {
        WriteMode::Optimistic => {
            store::holds::copy(transaction, &candidates.iter().flatten().collect::<Vec<_>>()).await?;
            Vec::new()
        }
        WriteMode::Tolerant => insert_tolerantly(transaction, &mut candidates).await?,
    };
    let mut changes = Changes::new();
    counts::add(&mut changes, candidates.iter().flatten(), CountsChange::TAKEN);
    let counts = store::stocks::change(transaction, &changes).await?;
    let mut written = Written {
        answers: Vec::with_capacity(items.len()),
        new: candidates.iter().map(Option::is_some).collect(),
        taken: lost.iter().map(|(sector_id, unit, _)| (*sector_id, *unit)).collect(),
        counts,
    };
    let mut others = answer_others(transaction, items, proposals, &events, &written).await?;
    for (index, candidate) in candidates.into_iter().enumerate() {
        let answer = match candidate {
            Some(hold) => reserved(&events, hold),
            None => others.remove(&index).unwrap_or(Ok(ReserveOutcome::Retry(Vec::new()))),
        };
        written.answers.push(answer);
    }
    Ok(written)
}

/// Inserts the holds that get all of their units and removes the others from `candidates`. Returns the units that other holds
/// or quotas have.
async fn insert_tolerantly(
    transaction: &Transaction,
    candidates: &mut Candidates,
) -> Result<Vec<HoldUnit>, Error> {
    let requested = store::holds::units_of(candidates.iter().flatten());
    let inserted = store::holds::insert_units(transaction, &requested).await?;
    let lost: Vec<HoldUnit> = requested.iter().copied().filter(|unit| !inserted.contains(unit)).collect();
    let losers: HashSet<HoldId> = lost.iter().map(|(_, _, hold_id)| *hold_id).collect();
    let winners: Vec<&Hold> = candidates.iter().flatten().filter(|hold| !losers.contains(&hold.id)).collect();
    let new = store::holds::insert(transaction, &winners).await?;
    // The others got only some of their units, or existed before.
    for candidate in candidates {
        candidate.take_if(|hold| !new.contains(&hold.id));
    }
    let unused: Vec<HoldUnit> = inserted.into_iter().filter(|(_, _, id)| !new.contains(id)).collect();
    store::holds::delete_units(transaction, &unused).await?;
    Ok(lost)
}

/// Returns the holds to insert: the event must be selling, and units must be proposed in every sector. Of two items with the
/// same hold, the second gets none and retries in the next batch.
fn candidates(items: &[ReserveItem], proposals: &[Proposals], events: &Events) -> Candidates {
    let mut seen = HashSet::with_capacity(items.len());
    let candidate = |(item, proposals): (&ReserveItem, &Proposals)| {
        let ReserveUnits { hold_id, event_id, customer_id, release_after, .. } = *item.command;
        let (event, now) = events.get(&event_id)?;
        if !event.is_selling_at(*now) || proposals.iter().any(Option::is_none) || !seen.insert(hold_id) {
            return None;
        }
        let proposed = proposals.iter().flatten().map(|proposal| &proposal.units_in_flight);
        let items = proposed.map(|it| HoldItem { sector_id: it.sector_id, units: it.units.clone() });
        Some(Hold {
            id: hold_id,
            event_id,
            customer_id,
            state: HoldState::Held,
            items: items.collect(),
            invited: None,
            create_time: *now,
            expire_time: store::holds::expire_time(*now, release_after),
        })
    };
    items.iter().zip(proposals).map(candidate).collect()
}

/// Returns the answers of the items without a new hold, by index. An existing hold is looked for first, because a repeated
/// request must succeed even if no unit is left.
async fn answer_others(
    transaction: &Transaction,
    items: &[ReserveItem],
    proposals: &[Proposals],
    events: &Events,
    written: &Written,
) -> Result<HashMap<usize, Result<ReserveOutcome, Error>>, Error> {
    let others: Vec<(usize, &ReserveItem)> =
        items.iter().enumerate().filter(|(index, _)| !written.is_new(*index)).collect();
    let hold_ids: Vec<HoldId> = others.iter().map(|(_, item)| item.command.hold_id).collect();
    let holds = store::holds::find(transaction, &hold_ids).await?;
    let lacking: Vec<SectorId> = others
        .iter()
        .flat_map(|(index, item)| lacking(item, proposals.get(*index)).map(|(sector_id, _)| sector_id))
        .filter(|sector_id| !written.counts.contains_key(sector_id))
        .collect();
    let mut counts = store::stocks::counts_of(transaction, &lacking).await?;
    counts.extend(&written.counts);
    let mut answers = HashMap::new();
    for (index, item) in others {
        let hold_id = item.command.hold_id;
        let answer = match events.get(&item.command.event_id) {
            None => Err(Error::EventNotFound { event_id: item.command.event_id }),
            Some(_) if written.has_inserted(items, hold_id) => Ok(ReserveOutcome::Retry(Vec::new())),
            Some((event, now)) => match holds.get(&hold_id).cloned() {
                Some(hold) => existing(event, item, hold),
                None => refusal(event, *now, item, proposals.get(index), &counts, &written.taken),
            },
        };
        answers.insert(index, answer);
    }
    Ok(answers)
}

impl Written {
    fn is_new(&self, index: usize) -> bool {
        self.new.get(index).is_some_and(|is_new| *is_new)
    }

    /// Returns true if an item of this batch inserted the hold. Another item with the same hold finds it in the next batch.
    fn has_inserted(&self, items: &[ReserveItem], hold_id: HoldId) -> bool {
        items.iter().zip(&self.new).any(|(item, is_new)| *is_new && item.command.hold_id == hold_id)
    }
}

/// Returns an existing hold if it is the result of the same request.
fn existing(event: &Arc<Event>, item: &ReserveItem, hold: Hold) -> Result<ReserveOutcome, Error> {
    let command = &item.command;
    let event = Arc::clone(event);
    if hold.is_tombstone() {
        let hold = hold.released_for(command.event_id, command.customer_id);
        return Ok(ReserveOutcome::Hold { event, hold });
    }
    if hold.answers(command.event_id, command.customer_id, &command.selections) {
        Ok(ReserveOutcome::Hold { event, hold })
    } else {
        Err(Error::HoldIdReused { hold_id: command.hold_id })
    }
}

/// Decides the answer to an item without a hold: the reason of its refusal, or that it may retry.
fn refusal(
    event: &Event,
    now: Timestamp,
    item: &ReserveItem,
    proposals: Option<&Proposals>,
    counts: &HashMap<SectorId, Counts>,
    taken: &HashSet<(SectorId, u32)>,
) -> Result<ReserveOutcome, Error> {
    if !event.is_selling_at(now) {
        let on_sale_time = event.details.on_sale_time.filter(|begin| *begin > now);
        return Err(Error::NotOnSale { state: event.state, on_sale_time });
    }
    // The counts include the holds of this batch, so an item that lacks units now is refused by Postgres, not by the pool.
    for (sector_id, count) in lacking(item, proposals) {
        let free_count = counts.get(&sector_id).map_or(0, Counts::free);
        if free_count < count {
            return Err(Error::NotEnoughUnits { sector_id, free_count });
        }
    }
    let short =
        lacking(item, proposals).map(|(sector_id, _)| ShortSector { sector_id, reason: RepairReason::Short });
    let proposed = proposals.into_iter().flatten().flatten().map(|proposal| &proposal.units_in_flight);
    let others = proposed.filter(|it| it.units.iter().any(|unit| taken.contains(&(it.sector_id, *unit))));
    let others = others.map(|units_in_flight| ShortSector {
        sector_id: units_in_flight.sector_id,
        reason: RepairReason::Wrong,
    });
    Ok(ReserveOutcome::Retry(short.chain(others).collect()))
}

/// Returns the sectors without a proposal, with the number of units asked for.
fn lacking<'a>(
    item: &'a ReserveItem,
    proposals: Option<&'a Proposals>,
) -> impl Iterator<Item = (SectorId, u32)> + 'a {
    let proposed = proposals.into_iter().flatten();
    let each = item.selections().zip(proposed).filter(|(_, proposal)| proposal.is_none());
    each.map(|((sector, choice), _)| (sector.id, choice.count()))
}

fn reserved(events: &Events, hold: Hold) -> Result<ReserveOutcome, Error> {
    let (event, _) = events.get(&hold.event_id).ok_or(Error::EventNotFound { event_id: hold.event_id })?;
    Ok(ReserveOutcome::Hold { event: Arc::clone(event), hold })
}

fn event_ids(items: &[ReserveItem]) -> Vec<EventId> {
    let ids: HashSet<EventId> = items.iter().map(|item| item.command.event_id).collect();
    ids.into_iter().collect()
}
