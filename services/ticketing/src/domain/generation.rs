//! Generations: jobs that give every unit of an event exactly one ticket.

use std::num::NonZeroU32;

use onsale_types::{EventId, GenerationId, OrganizerId, SectorId, Timestamp};

use super::event::EventSummary;

/// State of a generation. Names are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum GenerationState {
    /// No generator has started.
    Pending,
    Running,
    /// All tickets exist. Final: a later revision of the event starts a new generation.
    Completed,
    /// The last permitted attempt failed. `CreateGeneration` or a later revision of the event restarts it.
    Failed,
}

/// A generation with its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Generation {
    pub(crate) generation_id: GenerationId,
    pub(crate) event_id: EventId,
    pub(crate) state: GenerationState,
    /// In the event's order.
    pub(crate) sectors: Vec<SectorProgress>,
    pub(crate) create_time: Timestamp,
    /// `None` while PENDING for the first time.
    pub(crate) start_time: Option<Timestamp>,
    /// Time of completion or of the last failure. `None` while PENDING or RUNNING.
    pub(crate) end_time: Option<Timestamp>,
}

/// Selects a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenerationLookup {
    Id(GenerationId),
    /// The newest generation of an event.
    NewestOf(EventId),
}

/// A PENDING or RUNNING generation whose row is locked.
#[derive(Clone, Debug)]
pub(crate) struct OpenGeneration {
    pub(crate) generation_id: GenerationId,
    pub(crate) event: EventSummary,
    pub(crate) organizer_id: OrganizerId,
    /// Revision of the event for which the tickets are generated.
    pub(crate) revision: u64,
    /// Capacity of the event.
    pub(crate) ticket_count: u32,
    /// True if every sector has as many tickets as units.
    pub(crate) is_complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorProgress {
    pub(crate) sector_id: SectorId,
    /// Capacity of the sector in the generation's revision.
    pub(crate) ticket_count: u32,
    /// Tickets that exist, at most `ticket_count`.
    pub(crate) generated_count: u32,
}

impl SectorProgress {
    /// Returns the progress of a generation in a sector that has `existing_count` tickets now.
    pub(crate) fn new(
        state: GenerationState,
        sector_id: SectorId,
        ticket_count: u32,
        existing_count: u32,
    ) -> Self {
        let generated_count = match state {
            // A later generation may have added or removed tickets since.
            GenerationState::Completed => ticket_count,
            // Surplus tickets, which are still to be removed, are no progress.
            GenerationState::Pending | GenerationState::Running | GenerationState::Failed => {
                existing_count.min(ticket_count)
            }
        };
        Self { sector_id, ticket_count, generated_count }
    }
}

impl Generation {
    /// Returns the capacity of the event.
    pub(crate) fn ticket_count(&self) -> u32 {
        self.sectors.iter().fold(0, |sum, sector| sum.saturating_add(sector.ticket_count))
    }

    /// Returns the number of tickets that exist.
    pub(crate) fn generated_count(&self) -> u32 {
        self.sectors.iter().fold(0, |sum, sector| sum.saturating_add(sector.generated_count))
    }

    /// Returns true if no worker will continue the generation.
    pub(crate) fn is_over(&self) -> bool {
        match self.state {
            GenerationState::Pending | GenerationState::Running => false,
            GenerationState::Completed | GenerationState::Failed => true,
        }
    }
}

/// The next step of a sector, run in one transaction. Before and after it, the sector has exactly the tickets 1 to
/// `generated_count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Generates the tickets of the units `first` to `last`, both included.
    Generate { first: u32, last: u32 },
    /// Removes the tickets of the units `first` to `last`, both included: a later revision has a lower capacity.
    Remove { first: u32, last: u32 },
}

impl Batch {
    /// Returns the number of tickets that the batch generates or removes.
    pub(crate) fn size(self) -> u32 {
        let (Self::Generate { first, last } | Self::Remove { first, last }) = self;
        last.saturating_sub(first).saturating_add(1)
    }

    /// Returns the number of tickets that the sector has after the batch.
    pub(crate) fn generated_after(self) -> u32 {
        match self {
            Self::Generate { last, .. } => last,
            Self::Remove { first, .. } => first.saturating_sub(1),
        }
    }
}

/// Returns the next batch, of at most `size_max` tickets, of a sector with `generated` tickets and `capacity` units. `None` if
/// the sector is complete.
pub(crate) fn next_batch(generated: u32, capacity: u32, size_max: NonZeroU32) -> Option<Batch> {
    let size_max = size_max.get();
    if generated < capacity {
        let last = generated.saturating_add(size_max).min(capacity);
        Some(Batch::Generate { first: generated.saturating_add(1), last })
    } else if generated > capacity {
        let kept = generated.saturating_sub(size_max).max(capacity);
        Some(Batch::Remove { first: kept.saturating_add(1), last: generated })
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
            // The capacity may change between any two batches.
            plans in prop::collection::vec((0..400_u32, 0..5_usize), 1..5),
            size_max in 1..60_u32,
        ) {
            let size_max = NonZeroU32::new(size_max).unwrap();
            let mut tickets: BTreeSet<u32> = (1..=before).collect();
            let mut generated = before;
            let last_capacity = plans.last().unwrap().0;
            for (capacity, steps) in plans.into_iter().chain([(last_capacity, usize::MAX)]) {
                for _ in 0..steps {
                    let Some(batch) = next_batch(generated, capacity, size_max) else { break };
                    prop_assert!(batch.size() <= size_max.get());
                    match batch {
                        Batch::Generate { first, last } => {
                            for unit in first..=last {
                                prop_assert!(tickets.insert(unit), "unit {} has a ticket already", unit);
                            }
                        }
                        Batch::Remove { first, last } => {
                            for unit in first..=last {
                                prop_assert!(tickets.remove(&unit), "unit {} has no ticket", unit);
                            }
                        }
                    }
                    generated = batch.generated_after();
                    prop_assert_eq!(tickets.len(), usize::try_from(generated).unwrap());
                }
            }
            prop_assert_eq!(tickets, (1..=last_capacity).collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn progress_ignores_surplus_tickets_and_stays_full_once_completed() {
        let sector_id = SectorId::generate();
        let generated = |state, existing| SectorProgress::new(state, sector_id, 5, existing).generated_count;
        assert_eq!(generated(GenerationState::Running, 3), 3);
        assert_eq!(generated(GenerationState::Running, 9), 5);
        assert_eq!(generated(GenerationState::Completed, 3), 5);
    }

    #[test]
    fn complete_sector_has_no_next_batch() {
        assert_eq!(next_batch(7, 7, NonZeroU32::MIN), None);
    }
}
