//! The job that makes an event's tickets: exactly one for every unit, whatever happens in between.

use std::num::NonZeroU32;

use onsale_types::{EventId, GenerationId, OrganizerId, SectorId, Timestamp};

use super::event::EventSummary;

/// Where a job is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationState {
    /// No worker has begun.
    Pending,
    /// Workers make tickets.
    Running,
    /// All tickets exist. Final.
    Completed,
    /// Gave up; may be taken up again.
    Failed,
}

/// A job and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The job.
    pub generation_id: GenerationId,
    /// The event.
    pub event_id: EventId,
    /// Where it is.
    pub state: GenerationState,
    /// Its sectors, in the event's order.
    pub sectors: Vec<SectorProgress>,
    /// When it was created.
    pub create_time: Timestamp,
    /// When a worker began.
    pub start_time: Option<Timestamp>,
    /// When it ended.
    pub end_time: Option<Timestamp>,
}

/// A job that is not over, as whoever completes it sees it.
#[derive(Clone, Debug)]
pub struct OpenJob {
    /// The event.
    pub event: EventSummary,
    /// Whose it is.
    pub organizer_id: OrganizerId,
    /// The revision the tickets are made for.
    pub revision: i64,
    /// How many there are to be.
    pub ticket_count: u32,
    /// Whether all of them exist.
    pub is_complete: bool,
}

/// How far a job is in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorProgress {
    /// The sector.
    pub sector_id: SectorId,
    /// Tickets it is to have.
    pub ticket_count: u32,
    /// Tickets it has.
    pub generated_count: u32,
}

impl Generation {
    /// Tickets the event is to have.
    #[must_use]
    pub fn ticket_count(&self) -> u32 {
        self.sectors.iter().fold(0, |sum, sector| sum.saturating_add(sector.ticket_count))
    }

    /// Tickets it has.
    #[must_use]
    pub fn generated_count(&self) -> u32 {
        self.sectors.iter().fold(0, |sum, sector| sum.saturating_add(sector.generated_count))
    }

    /// Whether nothing more will happen by itself.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self.state {
            GenerationState::Pending | GenerationState::Running => false,
            GenerationState::Completed | GenerationState::Failed => true,
        }
    }
}

/// The next step of a sector, done in one transaction. A sector's tickets are the units 1 to some number, before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Make the tickets of the units `first` to `last`.
    Make {
        /// The first.
        first: u32,
        /// The last, at least the first.
        last: u32,
    },
    /// Remove the tickets of the units `first` to `last`: a draft became smaller.
    Trim {
        /// The first.
        first: u32,
        /// The last, at least the first.
        last: u32,
    },
}

impl Batch {
    /// How many tickets it makes or removes.
    #[must_use]
    pub fn size(self) -> u32 {
        let (Self::Make { first, last } | Self::Trim { first, last }) = self;
        last.saturating_sub(first).saturating_add(1)
    }

    /// How many tickets the sector has after it.
    #[must_use]
    pub fn generated_after(self) -> u32 {
        match self {
            Self::Make { last, .. } => last,
            Self::Trim { first, .. } => first.saturating_sub(1),
        }
    }
}

/// What is to be done next in a sector that has `generated` tickets and `capacity` units, at most `size_max` tickets at once.
#[must_use]
pub fn next_batch(generated: u32, capacity: u32, size_max: NonZeroU32) -> Option<Batch> {
    let size_max = size_max.get();
    if generated < capacity {
        let last = generated.saturating_add(size_max).min(capacity);
        Some(Batch::Make { first: generated.saturating_add(1), last })
    } else if generated > capacity {
        let kept = generated.saturating_sub(size_max).max(capacity);
        Some(Batch::Trim { first: kept.saturating_add(1), last: generated })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn batches_end_with_exactly_one_ticket_per_unit(
            before in 0..400_u32,
            // The draft may change at any moment.
            aims in prop::collection::vec((0..400_u32, 0..5_usize), 1..5),
            size_max in 1..60_u32,
        ) {
            let size_max = NonZeroU32::new(size_max).unwrap();
            let mut tickets: BTreeSet<u32> = (1..=before).collect();
            let mut generated = before;
            let last_aim = aims.last().unwrap().0;
            for (capacity, steps) in aims.into_iter().chain([(last_aim, usize::MAX)]) {
                for _ in 0..steps {
                    let Some(batch) = next_batch(generated, capacity, size_max) else { break };
                    prop_assert!(batch.size() <= size_max.get());
                    match batch {
                        Batch::Make { first, last } => {
                            for unit in first..=last {
                                prop_assert!(tickets.insert(unit), "unit {} twice", unit);
                            }
                        }
                        Batch::Trim { first, last } => {
                            for unit in first..=last {
                                prop_assert!(tickets.remove(&unit), "unit {} was not there", unit);
                            }
                        }
                    }
                    generated = batch.generated_after();
                    prop_assert_eq!(tickets.len(), usize::try_from(generated).unwrap());
                }
            }
            prop_assert_eq!(tickets, (1..=last_aim).collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn a_finished_sector_has_nothing_to_do() {
        assert_eq!(next_batch(7, 7, NonZeroU32::MIN), None);
    }
}
