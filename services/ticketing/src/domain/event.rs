//! Events and their sectors, as far as tickets need them.

use onsale_types::{EventId, OrganizerId, SectorId, Timestamp};

/// What a ticket or a mail says about its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSummary {
    /// The event.
    pub event_id: EventId,
    /// Its name.
    pub name: String,
    /// The venue's name.
    pub venue_name: String,
    /// The venue's street address.
    pub venue_address: Option<String>,
    /// IANA name of the venue's time zone.
    pub time_zone: String,
    /// When it starts.
    pub start_time: Timestamp,
}

/// An event as one revision of it describes it: what its tickets are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPlan {
    /// The event.
    pub event: EventSummary,
    /// Whose it is.
    pub organizer_id: OrganizerId,
    /// The highest counts.
    pub revision: i64,
    /// All its sectors, in order.
    pub sectors: Vec<SectorPlan>,
}

/// A sector of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectorPlan {
    /// The sector.
    pub sector_id: SectorId,
    /// Its name.
    pub name: String,
    /// How many units it has.
    pub capacity: u32,
    /// Its rows; none in general admission.
    pub rows: Vec<SeatRow>,
}

/// A row of seats, and the units it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeatRow {
    /// The unit of its first seat.
    pub first_unit: u32,
    /// What is printed for the row.
    pub label: String,
    /// What is printed for each seat; empty: `1`, `2`, and so on.
    pub seat_labels: Vec<String>,
}

/// A seat as it is printed on a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The row.
    pub row_label: String,
    /// The seat in it.
    pub seat_label: String,
}

/// Who may manage an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventOwner {
    /// The event.
    pub event_id: EventId,
    /// Whose it is.
    pub organizer_id: OrganizerId,
    /// Whether it was activated: everyone knows of it then.
    pub is_public: bool,
}

/// Why an organizer may not manage an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// They must not even learn that it exists.
    Hidden,
    /// It is public, and another's.
    NotOwned,
}

impl EventOwner {
    /// Whether `organizer` may manage the event.
    pub fn admit(&self, organizer: OrganizerId) -> Result<(), Denied> {
        match (self.organizer_id == organizer, self.is_public) {
            (true, _) => Ok(()),
            (false, true) => Err(Denied::NotOwned),
            (false, false) => Err(Denied::Hidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_hidden_from_other_organizers_and_a_public_event_is_not_theirs() {
        let (owner, other) = (OrganizerId::generate(), OrganizerId::generate());
        let event = |is_public| EventOwner { event_id: EventId::generate(), organizer_id: owner, is_public };
        assert_eq!(event(false).admit(owner), Ok(()));
        assert_eq!(event(true).admit(owner), Ok(()));
        assert_eq!(event(false).admit(other), Err(Denied::Hidden));
        assert_eq!(event(true).admit(other), Err(Denied::NotOwned));
    }
}
