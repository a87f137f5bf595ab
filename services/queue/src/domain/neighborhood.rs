//! The entries that wait just before and just after a customer.

use onsale_types::{EntryId, EventId};

use super::{entry::EntryState, refusal::Refusal};

/// A customer's newest entry and the entries that wait around it, read in one snapshot.
#[derive(Clone, Debug)]
pub(crate) struct EntryWithNeighbors {
    pub(crate) revision: u64,
    /// False for a WINDOWED queue, which does not store its entries.
    pub(crate) is_tracked: bool,
    /// `None` if the customer never joined.
    pub(crate) own: Option<OwnEntry>,
    /// Entries just before the customer's, in the order of the line.
    pub(crate) before: Vec<PublicProfile>,
    /// Entries just after the customer's, in the order of the line.
    pub(crate) after: Vec<PublicProfile>,
}

/// The customer's own entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnEntry {
    pub(crate) entry_id: EntryId,
    pub(crate) seq: u64,
    pub(crate) state: EntryState,
}

/// The fields of an entry that its neighbors may see. No other column leaves the table.
#[derive(Clone, Debug)]
pub(crate) struct PublicProfile {
    /// Number in line.
    pub(crate) seq: u64,
    /// May be empty.
    pub(crate) display_name: String,
    /// May be empty.
    pub(crate) avatar_url: String,
}

/// The neighbors of a waiting customer.
#[derive(Clone, Debug)]
pub(crate) struct Neighborhood {
    pub(crate) revision: u64,
    /// The customer's own position.
    pub(crate) position: u64,
    /// Neighbors just before the customer, in the order of the line.
    pub(crate) before: Vec<Neighbor>,
    /// Neighbors just after the customer, in the order of the line.
    pub(crate) after: Vec<Neighbor>,
}

/// A customer who waits near another one.
#[derive(Clone, Debug)]
pub(crate) struct Neighbor {
    pub(crate) position: u64,
    pub(crate) profile: PublicProfile,
}

impl EntryWithNeighbors {
    /// Returns the customer's entry if it waits in a TRACKED queue.
    pub(crate) fn waiting_entry(&self, event_id: EventId) -> Result<OwnEntry, Refusal> {
        if !self.is_tracked {
            return Err(Refusal::NeighborsNotTracked);
        }
        match self.own {
            Some(own) if own.state == EntryState::Waiting => Ok(own),
            Some(own) => Err(Refusal::EntryNotWaiting { state: own.state }),
            None => Err(Refusal::EntryNotFound { event_id }),
        }
    }

    /// Returns the lowest position that the customer can have: one behind the neighbors found before them.
    pub(crate) fn first_possible_position(&self) -> u64 {
        u64::try_from(self.before.len()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Numbers the neighbors around the customer's `position`.
    pub(crate) fn at_position(self, position: u64) -> Neighborhood {
        let first = position.saturating_sub(u64::try_from(self.before.len()).unwrap_or(u64::MAX));
        let neighbor = |(profile, position): (PublicProfile, u64)| Neighbor { position, profile };
        Neighborhood {
            revision: self.revision,
            position,
            before: self.before.into_iter().zip(first..).map(neighbor).collect(),
            after: self.after.into_iter().zip(position.saturating_add(1)..).map(neighbor).collect(),
        }
    }
}
