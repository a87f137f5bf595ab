//! Ends of holds: commits and releases in batches, which share one transaction, and the effects that every end has on units,
//! counts, quotas and events. Postgres changes first; pools and views follow after the commit.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use onsale_kit::{
    batcher::{BatchOutcome, Batcher, Processor},
    tasks::Tasks,
};
use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, HoldId, SectorId};

use super::{Engine, StockChange, failed_batch, quota_holds::ReleasedHolds};
use crate::{
    config::BatchesConfig,
    domain::{
        counts::{self, Changes, Counts, CountsChange},
        hold::{Hold, HoldEnd, HoldState},
        results::HoldAndOffer,
    },
    error::Error,
    store,
};

#[derive(Clone, Copy, Debug)]
struct EndHold {
    hold_id: HoldId,
    end: HoldEnd,
}

/// Collects commits and releases into batches.
pub(crate) struct EndHoldBatcher {
    engine: Arc<Engine>,
    batcher: Batcher<EndHold, Hold, Error>,
}

struct EndHoldProcessor {
    engine: Arc<Engine>,
}

/// The effects of ended holds that are applied after the commit.
pub(crate) struct EndedHolds {
    /// The holds whose units went to the public sale.
    freed: Vec<Hold>,
    /// The new counts of the sectors that changed.
    counts: HashMap<SectorId, Counts>,
}

impl EndHoldBatcher {
    pub(crate) fn new(engine: &Arc<Engine>, config: &BatchesConfig, tasks: &Tasks) -> Self {
        let processor = EndHoldProcessor { engine: Arc::clone(engine) };
        let batcher = Batcher::new("end holds", config.batcher(), processor, tasks);
        Self { engine: Arc::clone(engine), batcher }
    }

    /// Ends the hold. A repeat of the same end succeeds.
    pub(crate) async fn end_hold(&self, hold_id: HoldId, end: HoldEnd) -> Result<HoldAndOffer, Error> {
        let hold = self.batcher.submit(EndHold { hold_id, end }).await?;
        let offer = self.engine.offer_of_hold(&hold).await?;
        Ok(HoldAndOffer { hold, offer })
    }
}

impl Processor<EndHold> for EndHoldProcessor {
    type Output = Hold;
    type Error = Error;

    async fn process(&self, items: &[EndHold]) -> BatchOutcome<Hold, Error> {
        match self.engine.end_holds(items).await {
            Ok(answers) => BatchOutcome::Answered(answers),
            Err(error) => failed_batch(error),
        }
    }
}

impl Engine {
    /// Ends the holds of a batch in one transaction. Returns one answer per item, in their order.
    async fn end_holds(&self, items: &[EndHold]) -> Result<Vec<Result<Hold, Error>>, Error> {
        let (answers, ended) = self
            .stores
            .postgres
            .transaction("end holds", |transaction| async move {
                let mut holds = lock_all(&transaction, items).await?;
                let (mut committed, mut released) = (Vec::new(), Vec::new());
                let answers = items
                    .iter()
                    .map(|EndHold { hold_id, end }| {
                        let hold_id = *hold_id;
                        let hold = holds.get_mut(&hold_id).ok_or(Error::HoldNotFound { hold_id })?;
                        if hold.end(*end).map_err(|over| Error::HoldOver { hold_id, over })? {
                            match end {
                                HoldEnd::Commit => committed.push(hold.clone()),
                                HoldEnd::Release => released.push(hold.clone()),
                            }
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
        self.apply_ended(&ended).await;
        Ok(answers)
    }

    /// Writes the effects of ended holds in their transaction: units, quotas, counts and events.
    pub(crate) async fn after_end(
        &self,
        transaction: &Transaction,
        committed: &[Hold],
        released: Vec<Hold>,
    ) -> Result<EndedHolds, Error> {
        let ReleasedHolds { to_public, to_quota } =
            self.settle_quota_holds(transaction, committed, released).await?;
        store::holds::delete_units(transaction, &store::holds::units_of(&to_public)).await?;
        let mut changes = Changes::new();
        counts::add(&mut changes, committed, CountsChange::SOLD);
        counts::add(&mut changes, &to_public, CountsChange::FREED);
        counts::add(&mut changes, &to_quota, CountsChange::KEPT_AGAIN);
        let counts = store::stocks::change(transaction, &changes).await?;
        let fills_a_sector = |hold: &&Hold| {
            hold.items.iter().any(|item| counts.get(&item.sector_id).is_some_and(Counts::is_full))
        };
        let filling = committed.iter().chain(&to_quota).filter(fills_a_sector);
        let full: BTreeSet<EventId> = filling.map(|hold| hold.event_id).collect();
        let freed: BTreeSet<EventId> = to_public.iter().map(|hold| hold.event_id).collect();
        // Every transaction locks events in the order of their ids, so that two transactions cannot deadlock.
        for event_id in full.union(&freed) {
            if freed.contains(event_id) {
                self.make_available(transaction, *event_id).await?;
            } else {
                self.sell_out(transaction, *event_id).await?;
            }
        }
        Ok(EndedHolds { freed: to_public, counts })
    }

    /// Applies ended holds to views and pools, after the commit. If the process dies before, the reconciler corrects the pools.
    pub(crate) async fn apply_ended(&self, ended: &EndedHolds) {
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
            self.views.apply(*sector_id, counts.revision, StockChange { taken: Vec::new(), freed });
        }
        for ((event_id, sector_id), units) in freed {
            self.pools.put_back(event_id, sector_id, &units).await;
        }
    }
}

/// Locks the holds of a batch. A hold that is to be released and does not exist is inserted as a tombstone, so that it cannot be
/// made later.
async fn lock_all(transaction: &Transaction, items: &[EndHold]) -> Result<HashMap<HoldId, Hold>, Error> {
    let hold_ids: Vec<HoldId> = items.iter().map(|item| item.hold_id).collect();
    let mut holds = store::holds::lock(transaction, &hold_ids).await?;
    let unknown: BTreeSet<HoldId> = items
        .iter()
        .filter(|item| item.end == HoldEnd::Release && !holds.contains_key(&item.hold_id))
        .map(|item| item.hold_id)
        .collect();
    let unknown: Vec<HoldId> = unknown.into_iter().collect();
    // Waits for a transaction that makes one of these holds. If it commits, the hold exists and is released like any other.
    store::holds::insert_tombstones(transaction, &unknown).await?;
    holds.extend(store::holds::lock(transaction, &unknown).await?);
    Ok(holds)
}
