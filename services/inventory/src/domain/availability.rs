//! What is free in an event at one moment, and what changed between two.

use std::sync::Arc;

use onsale_types::{EventId, SectorId, Timestamp};

use super::{event::EventState, unit_set::UnitSet};

/// What one changed unit costs in a delta, in bytes: most numbers take two or three.
const CHANGED_UNIT_BYTES: usize = 3;

/// What is free in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// The event.
    pub event_id: EventId,
    /// Rises with every change of what is free.
    pub revision: u64,
    /// State of the event.
    pub state: EventState,
    /// Its sectors, in order.
    pub sectors: Vec<Stock>,
    /// When this was true.
    pub time: Timestamp,
}

/// What is free in a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stock {
    /// The sector.
    pub sector_id: SectorId,
    /// How many units it has.
    pub capacity: u32,
    /// How many are free.
    pub free_count: u32,
    /// How many are held and not sold.
    pub held_count: u32,
    /// Which are free. None: general admission.
    pub free: Option<Arc<UnitSet>>,
}

/// What to tell somebody who knows an earlier availability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Everything: what changed would be longer.
    Whole(Availability),
    /// What changed.
    Part(Delta),
}

/// What changed between two revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Before the change.
    pub previous_revision: u64,
    /// After the change.
    pub revision: u64,
    /// State of the event after the change.
    pub state: EventState,
    /// The sectors that changed.
    pub sectors: Vec<StockDelta>,
}

/// What changed in a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockDelta {
    /// The sector.
    pub sector_id: SectorId,
    /// How many are free now.
    pub free_count: u32,
    /// How many are held now.
    pub held_count: u32,
    /// Units that became free.
    pub freed: Vec<u32>,
    /// Units that are no longer free.
    pub taken: Vec<u32>,
}

impl Availability {
    /// The same with the sectors that `sectors` names only; none names all.
    #[must_use]
    pub fn only(&self, sectors: &[SectorId]) -> Self {
        let kept = |stock: &&Stock| sectors.is_empty() || sectors.contains(&stock.sector_id);
        Self { sectors: self.sectors.iter().filter(kept).cloned().collect(), ..self.clone() }
    }

    /// What to tell somebody who was told of the revision `told`, which says of `sectors` (none: all) what `before` says;
    /// nothing when nothing of that changed.
    #[must_use]
    pub fn since(&self, before: &Self, told: u64, sectors: &[SectorId]) -> Option<Change> {
        let follows = |stock: &&Stock| sectors.is_empty() || sectors.contains(&stock.sector_id);
        let mut deltas = Vec::new();
        for stock in self.sectors.iter().filter(follows) {
            let earlier = before.sectors.iter().find(|earlier| earlier.sector_id == stock.sector_id);
            let Some(earlier) = earlier else { return Some(Change::Whole(self.only(sectors))) };
            if stock != earlier {
                deltas.push(stock.since(earlier));
            }
        }
        if deltas.is_empty() && self.state == before.state {
            return None;
        }
        let units: usize = deltas.iter().map(|delta| delta.freed.len() + delta.taken.len()).sum();
        let map_bytes: usize = self
            .sectors
            .iter()
            .filter(follows)
            .filter_map(|stock| stock.free.as_ref())
            .map(|free| free.as_bytes().len())
            .sum();
        if units.saturating_mul(CHANGED_UNIT_BYTES) > map_bytes && units > 0 {
            return Some(Change::Whole(self.only(sectors)));
        }
        Some(Change::Part(Delta {
            previous_revision: told,
            revision: self.revision,
            state: self.state,
            sectors: deltas,
        }))
    }
}

impl Stock {
    fn since(&self, earlier: &Self) -> StockDelta {
        let (freed, taken) = match (&self.free, &earlier.free) {
            (Some(now), Some(before)) => {
                (now.without(before).iter().collect(), before.without(now).iter().collect())
            }
            (Some(_) | None, Some(_) | None) => (Vec::new(), Vec::new()),
        };
        StockDelta {
            sector_id: self.sector_id,
            free_count: self.free_count,
            held_count: self.held_count,
            freed,
            taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn availability(revision: u64, free: &[u32]) -> Availability {
        let mut set = UnitSet::empty(200);
        free.iter().for_each(|unit| set.insert(*unit));
        let seated = Stock {
            sector_id: SectorId::from_uuid(uuid::Uuid::from_u128(1)),
            capacity: 200,
            free_count: set.count(),
            held_count: 0,
            free: Some(Arc::new(set)),
        };
        let general = Stock {
            sector_id: SectorId::from_uuid(uuid::Uuid::from_u128(2)),
            capacity: 9,
            free_count: 9,
            held_count: 0,
            free: None,
        };
        Availability {
            event_id: EventId::from_uuid(uuid::Uuid::from_u128(3)),
            revision,
            state: EventState::OnSale,
            sectors: vec![seated, general],
            time: Timestamp::EPOCH,
        }
    }

    #[test]
    fn a_change_names_what_became_free_and_what_is_no_longer() {
        let (before, after) = (availability(1, &[1, 2]), availability(4, &[2, 3]));
        let Some(Change::Part(delta)) = after.since(&before, 1, &[]) else { panic!("a delta is shorter") };
        assert_eq!((delta.previous_revision, delta.revision), (1, 4));
        let [sector] = &delta.sectors[..] else { panic!("one sector changed: {delta:?}") };
        assert_eq!((&sector.freed[..], &sector.taken[..]), (&[3][..], &[1][..]));
    }

    #[test]
    fn who_follows_other_sectors_hears_nothing_but_a_change_of_state() {
        let (before, mut after) = (availability(1, &[1, 2]), availability(4, &[2, 3]));
        let general = [before.sectors[1].sector_id];
        assert_eq!(after.since(&before, 1, &general), None);
        after.state = EventState::Paused;
        let Some(Change::Part(delta)) = after.since(&before, 1, &general) else {
            panic!("a delta is shorter")
        };
        assert_eq!((delta.state, delta.sectors.len()), (EventState::Paused, 0));
    }

    #[test]
    fn the_whole_is_told_when_a_delta_would_be_longer() {
        let all: Vec<u32> = (1..=200).collect();
        let (before, after) = (availability(1, &all), availability(2, &[]));
        assert_eq!(after.since(&before, 1, &[]), Some(Change::Whole(after.clone())));
    }
}
