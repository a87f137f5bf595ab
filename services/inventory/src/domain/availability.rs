//! The availability of an event in one snapshot, and the change between two snapshots.

use std::sync::Arc;

use onsale_types::{EventId, SectorId, Timestamp};

use super::{event::EventState, unit_set::UnitSet};

/// Bytes of one changed unit in a delta: most unit numbers take two or three.
const CHANGED_UNIT_BYTES: usize = 3;

/// Free and held units of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Availability {
    pub(crate) event_id: EventId,
    /// Rises with every change of the event or its stock.
    pub(crate) revision: u64,
    pub(crate) state: EventState,
    /// In the event's order.
    pub(crate) sectors: Vec<SectorStock>,
    /// The database's time of the snapshot.
    pub(crate) time: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorStock {
    pub(crate) sector_id: SectorId,
    pub(crate) capacity: u32,
    pub(crate) free_count: u32,
    /// Units that are held and not sold.
    pub(crate) held_count: u32,
    /// The free units. `None`: general admission.
    pub(crate) free: Option<Arc<UnitSet>>,
}

/// A message that brings a watcher up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AvailabilityUpdate {
    /// The whole state: the first message, or one that is shorter than the delta.
    Full(Availability),
    Delta(AvailabilityDelta),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AvailabilityDelta {
    /// Revision of the watcher's previous message.
    pub(crate) previous_revision: u64,
    pub(crate) revision: u64,
    /// State of the event after the change.
    pub(crate) state: EventState,
    /// The sectors that changed.
    pub(crate) sectors: Vec<SectorDelta>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorDelta {
    pub(crate) sector_id: SectorId,
    /// Free units after the change.
    pub(crate) free_count: u32,
    /// Held units after the change.
    pub(crate) held_count: u32,
    /// Units that became free; always empty for general admission.
    pub(crate) freed: Vec<u32>,
    /// Units that are no longer free; always empty for general admission.
    pub(crate) taken: Vec<u32>,
}

impl Availability {
    /// Returns a copy with `sectors` only; empty: all.
    #[must_use]
    pub(crate) fn only(&self, sectors: &[SectorId]) -> Self {
        let kept = |stock: &&SectorStock| sectors.is_empty() || sectors.contains(&stock.sector_id);
        Self { sectors: self.sectors.iter().filter(kept).cloned().collect(), ..self.clone() }
    }

    /// Returns the update for a watcher of `sectors` (empty: all) whose last message had the revision `sent` and equals
    /// `before` in those sectors. Returns `None` if nothing changed for the watcher.
    #[must_use]
    pub(crate) fn since(&self, before: &Self, sent: u64, sectors: &[SectorId]) -> Option<AvailabilityUpdate> {
        let is_watched = |stock: &&SectorStock| sectors.is_empty() || sectors.contains(&stock.sector_id);
        let mut deltas = Vec::new();
        for stock in self.sectors.iter().filter(is_watched) {
            let earlier = before.sectors.iter().find(|earlier| earlier.sector_id == stock.sector_id);
            let Some(earlier) = earlier else { return Some(AvailabilityUpdate::Full(self.only(sectors))) };
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
            .filter(is_watched)
            .filter_map(|stock| stock.free.as_ref())
            .map(|free| free.as_bytes().len())
            .sum();
        if units.saturating_mul(CHANGED_UNIT_BYTES) > map_bytes && units > 0 {
            return Some(AvailabilityUpdate::Full(self.only(sectors)));
        }
        Some(AvailabilityUpdate::Delta(AvailabilityDelta {
            previous_revision: sent,
            revision: self.revision,
            state: self.state,
            sectors: deltas,
        }))
    }
}

impl SectorStock {
    fn since(&self, earlier: &Self) -> SectorDelta {
        let (freed, taken) = match (&self.free, &earlier.free) {
            (Some(now), Some(before)) => {
                (now.without(before).iter().collect(), before.without(now).iter().collect())
            }
            (Some(_) | None, Some(_) | None) => (Vec::new(), Vec::new()),
        };
        SectorDelta {
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
        let seated = SectorStock {
            sector_id: SectorId::from_uuid(uuid::Uuid::from_u128(1)),
            capacity: 200,
            free_count: set.count(),
            held_count: 0,
            free: Some(Arc::new(set)),
        };
        let general = SectorStock {
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
    fn delta_names_freed_and_taken_units() {
        let (before, after) = (availability(1, &[1, 2]), availability(4, &[2, 3]));
        let Some(AvailabilityUpdate::Delta(delta)) = after.since(&before, 1, &[]) else {
            panic!("a delta is shorter")
        };
        assert_eq!((delta.previous_revision, delta.revision), (1, 4));
        let [sector] = &delta.sectors[..] else { panic!("one sector changed: {delta:?}") };
        assert_eq!((&sector.freed[..], &sector.taken[..]), (&[3][..], &[1][..]));
    }

    #[test]
    fn watcher_of_other_sectors_gets_only_state_changes() {
        let (before, mut after) = (availability(1, &[1, 2]), availability(4, &[2, 3]));
        let general = [before.sectors[1].sector_id];
        assert_eq!(after.since(&before, 1, &general), None);
        after.state = EventState::Paused;
        let Some(AvailabilityUpdate::Delta(delta)) = after.since(&before, 1, &general) else {
            panic!("a delta is shorter")
        };
        assert_eq!((delta.state, delta.sectors.len()), (EventState::Paused, 0));
    }

    #[test]
    fn full_update_replaces_a_longer_delta() {
        let all: Vec<u32> = (1..=200).collect();
        let (before, after) = (availability(1, &all), availability(2, &[]));
        assert_eq!(after.since(&before, 1, &[]), Some(AvailabilityUpdate::Full(after.clone())));
    }
}
