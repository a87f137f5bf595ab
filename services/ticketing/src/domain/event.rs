//! Events and their sectors, as far as tickets need them.

use onsale_types::{EventId, OrganizerId, SectorId, Timestamp};

/// Description of an event, as printed on tickets and in mails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventSummary {
    pub(crate) event_id: EventId,
    pub(crate) name: String,
    pub(crate) venue_name: String,
    pub(crate) venue_address: Option<String>,
    /// IANA name of the venue's time zone.
    pub(crate) time_zone: String,
    pub(crate) start_time: Timestamp,
}

/// One revision of an event, from which its tickets are generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventPlan {
    pub(crate) event: EventSummary,
    pub(crate) organizer_id: OrganizerId,
    /// Rises with every change of the event; lower revisions are ignored.
    pub(crate) revision: u64,
    /// All sectors, in the event's order.
    pub(crate) sectors: Vec<SectorPlan>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectorPlan {
    pub(crate) sector_id: SectorId,
    pub(crate) name: String,
    /// Number of units, at least 1.
    pub(crate) capacity: u32,
    /// Rows in the order of their units. Empty in general admission.
    pub(crate) rows: Vec<SeatRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeatRow {
    /// Unit of the first seat; the other seats follow.
    pub(crate) first_unit: u32,
    pub(crate) label: String,
    /// Labels of the seats. Empty: `1`, `2` and so on.
    pub(crate) seat_labels: Vec<String>,
}

/// A seat as printed on a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) row_label: String,
    pub(crate) seat_label: String,
}

/// Ownership and visibility of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventOwner {
    pub(crate) organizer_id: OrganizerId,
    /// True once the event was activated or has ended. Until then it is a draft that only its organizer may see.
    pub(crate) is_public: bool,
}

/// The answer to an organizer who does not own an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnershipError {
    /// The event is another organizer's draft, so its existence is not revealed.
    NotFound,
    NotOwner,
}

impl EventOwner {
    /// Refuses an organizer who does not own the event.
    pub(crate) fn check_owner(&self, organizer_id: OrganizerId) -> Result<(), OwnershipError> {
        match (self.organizer_id == organizer_id, self.is_public) {
            (true, _) => Ok(()),
            (false, true) => Err(OwnershipError::NotOwner),
            (false, false) => Err(OwnershipError::NotFound),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_organizers_do_not_find_drafts_and_do_not_own_public_events() {
        let (organizer_id, other_id) = (OrganizerId::generate(), OrganizerId::generate());
        let event = |is_public| EventOwner { organizer_id, is_public };
        assert_eq!(event(false).check_owner(organizer_id), Ok(()));
        assert_eq!(event(true).check_owner(organizer_id), Ok(()));
        assert_eq!(event(false).check_owner(other_id), Err(OwnershipError::NotFound));
        assert_eq!(event(true).check_owner(other_id), Err(OwnershipError::NotOwner));
    }
}
