//! `CommitHold` and `ReleaseHold`, and the expiry of holds: units are sold or go back, in Postgres first. Those that arrive
//! together share one transaction.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use onsale_kit::{
    batcher::{BatchOutcome, Batcher, Processor},
    tasks::Tasks,
};
use onsale_proto::inventory::v1 as pb;
use onsale_storage::{messaging::NewEvent, postgres::Transaction};
use onsale_types::{EventId, HoldId, SectorId};

use super::{App, failed_batch, quota::settle::ReleasedHolds, views::StockChange};
use crate::{
    convert,
    domain::{
        counts::{self, Changes, Counts, CountsChange},
        event::{Event, EventState, Move},
        hold::{Hold, HoldState},
    },
    error::Error,
    metrics, store,
};

/// How a hold is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Release,
}

#[derive(Clone, Copy, Debug)]
struct EndHold {
    hold_id: HoldId,
    end: End,
}

/// Takes commits and releases and hands them over in batches.
#[derive(Debug)]
pub struct EndHoldBatcher {
    app: Arc<App>,
    batcher: Batcher<EndHold, Hold, Error>,
}

struct EndHoldProcessor {
    app: Arc<App>,
}

/// What the end of some holds came to.
pub(super) struct Ended {
    /// The holds whose units are free for everybody now.
    freed: Vec<Hold>,
    /// The sectors that changed.
    counts: HashMap<SectorId, Counts>,
}

impl EndHoldBatcher {
    /// With batches as the settings say.
    #[must_use]
    pub fn new(app: &Arc<App>, tasks: &Tasks) -> Self {
        let config = app.config.holds.batches.batcher();
        let batcher = Batcher::new("end holds", config, EndHoldProcessor { app: Arc::clone(app) }, tasks);
        Self { app: Arc::clone(app), batcher }
    }

    /// Makes the hold's units sold.
    pub async fn commit_hold(&self, hold_id: HoldId) -> Result<pb::CommitHoldResponse, Error> {
        let hold = self.batcher.submit(EndHold { hold_id, end: End::Commit }).await?;
        convert::committed(&hold, &self.app.sectors_of(&hold).await?.sectors)
    }

    /// Gives the hold's units back. One that was never made is noted as released, so that it cannot be made late.
    pub async fn release_hold(&self, hold_id: HoldId) -> Result<pb::ReleaseHoldResponse, Error> {
        let hold = self.batcher.submit(EndHold { hold_id, end: End::Release }).await?;
        convert::released(&hold, &self.app.sectors_of(&hold).await?.sectors)
    }
}

impl Processor<EndHold> for EndHoldProcessor {
    type Output = Hold;
    type Error = Error;

    async fn process(&self, items: &[EndHold]) -> BatchOutcome<Hold, Error> {
        match self.app.end_holds(items).await {
            Ok(answers) => BatchOutcome::Answered(answers),
            Err(error) => failed_batch(error),
        }
    }
}

impl App {
    /// Ends the holds of a batch; one answer for each.
    async fn end_holds(&self, items: &[EndHold]) -> Result<Vec<Result<Hold, Error>>, Error> {
        let (answers, ended) = self
            .stores
            .postgres
            .transaction("end holds", |transaction| async move {
                let mut holds = lock_all(&transaction, items).await?;
                let mut committed = Vec::new();
                let mut released = Vec::new();
                let answers = items
                    .iter()
                    .map(|item| {
                        let hold_id = item.hold_id;
                        let hold = holds.get_mut(&hold_id).ok_or(Error::HoldNotFound { hold_id })?;
                        let moved = match item.end {
                            End::Commit => hold.state.commit(),
                            End::Release => hold.state.release(),
                        };
                        if moved.map_err(|over| Error::HoldOver { hold_id, over })? {
                            let (state, ended) = match item.end {
                                End::Commit => (HoldState::Committed, &mut committed),
                                End::Release => (HoldState::Released, &mut released),
                            };
                            hold.state = state;
                            ended.push(hold.clone());
                        }
                        Ok(hold.clone())
                    })
                    .collect::<Vec<_>>();
                store::holds::end(&transaction, &committed, HoldState::Committed).await?;
                store::holds::end(&transaction, &released, HoldState::Released).await?;
                let ended = self.after_end(&transaction, &committed, released).await?;
                Ok::<_, Error>((answers, ended))
            })
            .await?;
        self.settle_ended(&ended).await;
        Ok(answers)
    }

    /// Releases all holds that are past their time, by the database's clock, some in each transaction: the net under claims
    /// lost in a crash. Any number of processes may do so at once.
    pub async fn expire_holds(&self) -> Result<(), Error> {
        let holds_max = self.config.holds.expire_batch_max;
        loop {
            let (count, ended) = self
                .stores
                .postgres
                .transaction("expire holds", |transaction| async move {
                    let holds = store::holds::expire(&transaction, holds_max).await?;
                    Ok::<_, Error>((holds.len(), self.after_end(&transaction, &[], holds).await?))
                })
                .await?;
            if count > 0 {
                tracing::info!(holds = count, "holds expired");
                metrics::expired(count);
                self.settle_ended(&ended).await;
            }
            if u32::try_from(count).is_ok_and(|count| count < holds_max) {
                return Ok(());
            }
        }
    }

    /// What follows from the end of holds, in their transaction: units, counts, and what is told of the events.
    async fn after_end(
        &self,
        transaction: &Transaction,
        committed: &[Hold],
        released: Vec<Hold>,
    ) -> Result<Ended, Error> {
        let ReleasedHolds { public, kept } =
            self.settle_quota_holds(transaction, committed, released).await?;
        store::holds::delete_units(transaction, &store::holds::units_of(&public)).await?;
        let mut changes = Changes::new();
        counts::add(&mut changes, committed, CountsChange::SOLD);
        counts::add(&mut changes, &public, CountsChange::FREED);
        counts::add(&mut changes, &kept, CountsChange::KEPT_AGAIN);
        let counts = store::stocks::change(transaction, &changes).await?;
        let is_full = |hold: &&Hold| {
            hold.items.iter().any(|item| counts.get(&item.sector_id).is_some_and(Counts::is_full))
        };
        let no_more_held = committed.iter().chain(&kept).filter(is_full);
        let full: BTreeSet<EventId> = no_more_held.map(|hold| hold.event_id).collect();
        let back: BTreeSet<EventId> = public.iter().map(|hold| hold.event_id).collect();
        // In one order for everybody: two that move the same two events must not wait for each other.
        for event_id in full.union(&back) {
            if back.contains(event_id) {
                self.take_back(transaction, *event_id).await?;
            } else {
                self.sell_out(transaction, *event_id).await?;
            }
        }
        Ok(Ended { freed: public, counts })
    }

    /// After the commit: views and pools follow. Should we die before, the reconciler does it.
    async fn settle_ended(&self, ended: &Ended) {
        self.stores.outbox.wake_relay();
        let mut freed: BTreeMap<(EventId, SectorId), Vec<u32>> = BTreeMap::new();
        for hold in &ended.freed {
            for item in &hold.items {
                freed.entry((hold.event_id, item.sector_id)).or_default().extend(&item.units);
            }
        }
        for (sector_id, counts) in &ended.counts {
            let own = freed.iter().filter(|((_, of), _)| of == sector_id);
            let freed = own.flat_map(|(_, units)| units.iter().copied()).collect();
            self.views.follow(*sector_id, counts.revision, StockChange { taken: Vec::new(), freed });
        }
        for ((event_id, sector_id), units) in freed {
            self.pools.put_back(event_id, sector_id, &units).await;
        }
    }

    /// Sells the event out if nothing is left, and answers it, locked. Whoever fills a sector comes here and locks the event
    /// first; so of two that fill the last two sectors side by side, the second sees what the first has done.
    pub(super) async fn sell_out(
        &self,
        transaction: &Transaction,
        event_id: EventId,
    ) -> Result<Event, Error> {
        let event =
            store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        let counts = store::stocks::counts(transaction, event_id).await?;
        if !counts.values().all(Counts::is_full) {
            return Ok(event);
        }
        let Move::To(state) = event.state.sell_out() else { return Ok(event) };
        let event = store::events::move_to(transaction, event_id, state).await?;
        let revision = store::stocks::revision(&event, &counts);
        let payload = convert::sold_out(event_id, revision, store::stocks::now(transaction).await?);
        self.stores.outbox.append(transaction, &[NewEvent::new(event_id, &payload)]).await?;
        Ok(event)
    }

    /// Says that a sold-out event has units again.
    pub(super) async fn take_back(&self, transaction: &Transaction, event_id: EventId) -> Result<(), Error> {
        // Without a lock on the usual way: as long as our units are not sold, nobody can sell the event out.
        let found = store::events::find(transaction, event_id).await?;
        if found.is_none_or(|event| event.state != EventState::SoldOut) {
            return Ok(());
        }
        let event =
            store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        let Move::To(state) = event.state.take_back() else { return Ok(()) };
        let event = store::events::move_to(transaction, event_id, state).await?;
        let offer = self.offer_of(transaction, &event).await?;
        let counts = store::stocks::counts(transaction, event_id).await?;
        let (revision, now) =
            (store::stocks::revision(&event, &counts), store::stocks::now(transaction).await?);
        let payload = convert::available(event_id, revision, now, &offer.sectors, &counts);
        self.stores.outbox.append(transaction, &[NewEvent::new(event_id, &payload)]).await?;
        Ok(())
    }
}

/// The holds of a batch, locked. Those that are to be released and were never made are made as released.
async fn lock_all(transaction: &Transaction, items: &[EndHold]) -> Result<HashMap<HoldId, Hold>, Error> {
    let ids: Vec<HoldId> = items.iter().map(|item| item.hold_id).collect();
    let mut holds = store::holds::lock(transaction, &ids).await?;
    let unknown: BTreeSet<HoldId> = items
        .iter()
        .filter(|item| item.end == End::Release && !holds.contains_key(&item.hold_id))
        .map(|item| item.hold_id)
        .collect();
    let unknown: Vec<HoldId> = unknown.into_iter().collect();
    // Waits for whoever makes one of them right now: then it is there, and is released like any other.
    store::holds::insert_released(transaction, &unknown).await?;
    holds.extend(store::holds::lock(transaction, &unknown).await?);
    Ok(holds)
}
