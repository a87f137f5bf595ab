//! One transaction for the reservations of a batch: the units first, then the holds of those who got all of theirs, then what
//! is counted. Whoever got only a part gives it back before anybody can see it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use onsale_storage::postgres::{self, Transaction};
use onsale_types::{EventId, HoldId, SectorId, Timestamp};

use super::{
    App,
    mend_pools::RepairReason,
    propose::{Origin, Proposal, Proposals},
    reserve_units::{ReserveItem, ReserveOutcome, ReserveUnits, ShortSector},
    views::StockChange,
};
use crate::{
    domain::{
        counts::{self, Changes, Counts, CountsChange},
        event::Event,
        hold::{Hold, HoldItem, HoldState},
    },
    error::Error,
    store::{self, holds::HoldUnit},
};

/// What a batch came to.
pub(super) struct Written {
    /// Of each item, in order.
    pub(super) answers: Vec<Result<ReserveOutcome, Error>>,
    /// Of each item, in order: whether it has a new hold.
    new: Vec<bool>,
    /// The units that others have.
    taken: HashSet<(SectorId, u32)>,
    /// What the new holds made of the counts.
    counts: HashMap<SectorId, Counts>,
}

/// How long batches are written with care after one met what was another's: such batches come together, and each would be written
/// twice.
const CAREFUL_FOR: Duration = Duration::from_secs(1);

/// How a batch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteMode {
    /// As if nothing of it were there before. If something is, all of it fails with a conflict.
    Optimistic,
    /// What is there before, or another's, is left out. Twice the work for Postgres.
    Tolerant,
}

/// What the database says of the events of a batch.
type Events = HashMap<EventId, (Arc<Event>, Timestamp)>;

/// The holds to be made: one for each item, in order; none for those who cannot get one.
type Candidates = Vec<Option<Hold>>;

impl App {
    /// Writes the holds of the batch.
    pub(super) async fn write_holds(
        &self,
        items: &[ReserveItem],
        proposals: &[Proposals],
    ) -> Result<Written, Error> {
        // What Redis gave to us it gave to nobody else. What a customer chose, or Postgres called free, others may have chosen too.
        let is_ours = |proposal: &Proposal| proposal.origin == Origin::Redis;
        if !self.careful.is_on() && proposals.iter().flatten().flatten().all(is_ours) {
            match self.write_in(WriteMode::Optimistic, items, proposals).await {
                // Redis was wrong, or somebody asks for the second time.
                Err(Error::Postgres(postgres::Error::Conflict { .. })) => self.careful.begin(CAREFUL_FOR),
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
        self.stores.postgres.transaction("reserve units", work).await
    }

    /// After the commit: the pools and the views follow.
    pub(super) async fn settle(&self, items: &[ReserveItem], proposals: &[Proposals], written: &Written) {
        let mut taken: BTreeMap<(EventId, SectorId), (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        for (index, (item, proposals)) in items.iter().zip(proposals).enumerate() {
            for proposal in proposals.iter().flatten().filter(|_| written.is_new(index)) {
                let key = (item.command.event_id, proposal.units_in_flight.sector_id);
                let (all, unasked) = taken.entry(key).or_default();
                all.extend(&proposal.units_in_flight.units);
                if proposal.origin == Origin::Other {
                    unasked.extend(&proposal.units_in_flight.units);
                }
            }
        }
        for ((event_id, sector_id), (all, unasked)) in taken {
            if let Some(counts) = written.counts.get(&sector_id) {
                self.views.follow(sector_id, counts.revision, StockChange { taken: all, freed: Vec::new() });
            }
            self.pools.take_out(event_id, sector_id, &unasked).await;
        }
        let is_in_vain =
            |index: usize, unit: (SectorId, u32)| !written.is_new(index) && !written.taken.contains(&unit);
        self.return_units(items, proposals, is_in_vain).await;
    }

    /// What was taken out of the pools and `is_in_vain` goes back.
    pub(super) async fn return_units(
        &self,
        items: &[ReserveItem],
        proposals: &[Proposals],
        is_in_vain: impl Fn(usize, (SectorId, u32)) -> bool,
    ) {
        let mut units: BTreeMap<(EventId, SectorId), Vec<u32>> = BTreeMap::new();
        for (index, (item, proposals)) in items.iter().zip(proposals).enumerate() {
            for proposal in proposals.iter().flatten().filter(|it| it.origin == Origin::Redis) {
                let sector_id = proposal.units_in_flight.sector_id;
                let returned = proposal
                    .units_in_flight
                    .units
                    .iter()
                    .filter(|unit| is_in_vain(index, (sector_id, **unit)));
                units.entry((item.command.event_id, sector_id)).or_default().extend(returned);
            }
        }
        for ((event_id, sector_id), units) in units {
            self.pools.put_back(event_id, sector_id, &units).await;
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

/// Writes those of `candidates` that get all of their units, and keeps no other. Answers the units that others have.
async fn insert_tolerantly(
    transaction: &Transaction,
    candidates: &mut Candidates,
) -> Result<Vec<HoldUnit>, Error> {
    let wanted = store::holds::units_of(candidates.iter().flatten());
    let got = store::holds::insert_units(transaction, &wanted).await?;
    let lost: Vec<HoldUnit> = wanted.iter().copied().filter(|unit| !got.contains(unit)).collect();
    let losers: HashSet<HoldId> = lost.iter().map(|(_, _, hold_id)| *hold_id).collect();
    let winners: Vec<&Hold> = candidates.iter().flatten().filter(|hold| !losers.contains(&hold.id)).collect();
    let new = store::holds::insert(transaction, &winners).await?;
    // The others have a part, or were there before.
    for place in candidates {
        place.take_if(|hold| !new.contains(&hold.id));
    }
    let in_vain: Vec<HoldUnit> = got.into_iter().filter(|(_, _, id)| !new.contains(id)).collect();
    store::holds::delete_units(transaction, &in_vain).await?;
    Ok(lost)
}

/// The holds to be made: of those who may reserve, and for whom something was proposed in every sector. Of two that ask for
/// the same hold one is left to the next batch.
fn candidates(items: &[ReserveItem], proposals: &[Proposals], events: &Events) -> Candidates {
    let mut seen = HashSet::with_capacity(items.len());
    let candidate = |(item, proposals): (&ReserveItem, &Proposals)| {
        let ReserveUnits { hold_id, event_id, customer_id, release_after, .. } = *item.command;
        let (event, now) = events.get(&event_id)?;
        if !event.is_selling_at(*now) || proposals.iter().any(Option::is_none) || !seen.insert(hold_id) {
            return None;
        }
        let taken = proposals.iter().flatten().map(|proposal| &proposal.units_in_flight);
        let items = taken.map(|it| HoldItem { sector_id: it.sector_id, units: it.units.clone() });
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

/// The answers to all who have no new hold. That somebody asks for the second time comes first: a repeat must be answered
/// also when nothing is left.
async fn answer_others(
    transaction: &Transaction,
    items: &[ReserveItem],
    proposals: &[Proposals],
    events: &Events,
    written: &Written,
) -> Result<HashMap<usize, Result<ReserveOutcome, Error>>, Error> {
    let others: Vec<(usize, &ReserveItem)> =
        items.iter().enumerate().filter(|(index, _)| !written.is_new(*index)).collect();
    let ids: Vec<HoldId> = others.iter().map(|(_, item)| item.command.hold_id).collect();
    let holds = store::holds::find(transaction, &ids).await?;
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
            Some(_) if written.new_has(items, hold_id) => Ok(ReserveOutcome::Retry(Vec::new())),
            Some((event, now)) => match holds.get(&hold_id).cloned() {
                Some(hold) => as_it_is(event, item, hold),
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

    /// Whether an item of this batch has just made the hold: whoever asked for the same one finds it next time.
    fn new_has(&self, items: &[ReserveItem], hold_id: HoldId) -> bool {
        items.iter().zip(&self.new).any(|(item, is_new)| *is_new && item.command.hold_id == hold_id)
    }
}

/// A hold from before, if it is what is asked for.
fn as_it_is(event: &Arc<Event>, item: &ReserveItem, hold: Hold) -> Result<ReserveOutcome, Error> {
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

/// Why an item has no hold, or that it may try again.
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
    // Counted after the holds of this batch: whoever is short now is short by what Postgres says.
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

/// The sectors for which nothing was proposed, and how much was wanted.
fn lacking<'a>(
    item: &'a ReserveItem,
    proposals: Option<&'a Proposals>,
) -> impl Iterator<Item = (SectorId, u32)> + 'a {
    let proposed = proposals.into_iter().flatten();
    let each = item.wanted().zip(proposed).filter(|(_, proposal)| proposal.is_none());
    each.map(|((sector, wanted), _)| (sector.id, wanted.count()))
}

fn reserved(events: &Events, hold: Hold) -> Result<ReserveOutcome, Error> {
    let (event, _) = events.get(&hold.event_id).ok_or(Error::EventNotFound { event_id: hold.event_id })?;
    Ok(ReserveOutcome::Hold { event: Arc::clone(event), hold })
}

fn event_ids(items: &[ReserveItem]) -> Vec<EventId> {
    let ids: HashSet<EventId> = items.iter().map(|item| item.command.event_id).collect();
    ids.into_iter().collect()
}
