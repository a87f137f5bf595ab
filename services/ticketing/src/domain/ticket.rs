//! One ticket: its life, and the decision at the gate.

use onsale_types::{ClaimId, EventId, SectorId, TicketId, Timestamp};

use super::{
    code::Code,
    event::{EventSummary, Seat},
};

/// Where a ticket is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// Exists, belongs to nobody.
    Generated,
    /// Belongs to a customer and admits once.
    Issued,
    /// Has admitted. Final.
    CheckedIn,
    /// Admits nobody. Final.
    Void,
}

/// A ticket that was issued, whatever became of it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The ticket.
    pub ticket_id: TicketId,
    /// The event.
    pub event: EventSummary,
    /// The sector.
    pub sector_id: SectorId,
    /// The sector's name.
    pub sector_name: String,
    /// The unit it admits to.
    pub unit: u32,
    /// The seat that is.
    pub seat: Option<Seat>,
    /// Where it is in its life.
    pub state: TicketState,
    /// What it was bought with.
    pub claim_id: ClaimId,
    /// The code that admits.
    pub code: Code,
    /// When it was issued.
    pub issue_time: Timestamp,
    /// The check-in.
    pub check_in: Option<CheckIn>,
    /// When it became void.
    pub void_time: Option<Timestamp>,
}

/// Somebody went in with a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckIn {
    /// When.
    pub time: Timestamp,
    /// Where.
    pub gate: String,
}

/// Which of a customer's tickets to list.
#[derive(Clone, Debug, Default)]
pub struct TicketFilter {
    /// Of this event only.
    pub event_id: Option<EventId>,
    /// Of this claim only.
    pub claim_id: Option<ClaimId>,
    /// In these states only; empty: in any.
    pub states: Vec<TicketState>,
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListPosition {
    /// When the event starts.
    pub start_time: Timestamp,
    /// The ticket.
    pub ticket_id: TicketId,
}

/// What came of a check-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckInOutcome {
    /// Let in.
    Admitted,
    /// Somebody went in with it before.
    AlreadyCheckedIn,
    /// The money went back.
    Void,
    /// It is an old code of a transferred ticket.
    CodeReplaced,
    /// The ticket is for another event.
    WrongEvent,
    /// Nobody bought the ticket.
    NotIssued,
}

impl Ticket {
    /// The code, if whoever shows it gets in.
    #[must_use]
    pub fn valid_code(&self) -> Option<&Code> {
        (self.state == TicketState::Issued).then_some(&self.code)
    }

    /// Whether the bearer of `code`, whose signature is proven, may go in.
    #[must_use]
    pub fn check_in(&self, code: &Code) -> CheckInOutcome {
        match self.state {
            TicketState::Generated => CheckInOutcome::NotIssued,
            TicketState::Void => CheckInOutcome::Void,
            TicketState::Issued | TicketState::CheckedIn if self.code != *code => {
                CheckInOutcome::CodeReplaced
            }
            TicketState::CheckedIn => CheckInOutcome::AlreadyCheckedIn,
            TicketState::Issued => CheckInOutcome::Admitted,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::domain) fn ticket(state: TicketState) -> Ticket {
        Ticket {
            ticket_id: TicketId::generate(),
            event: EventSummary {
                event_id: EventId::generate(),
                name: "Derbi čšžćđ (final)".to_owned(),
                venue_name: "Maksimir".to_owned(),
                venue_address: Some("Maksimirska 128, Zagreb".to_owned()),
                time_zone: "Europe/Zagreb".to_owned(),
                start_time: Timestamp::from_secs(1_800_000_000),
            },
            sector_id: SectorId::generate(),
            sector_name: "Istok".to_owned(),
            unit: 7,
            seat: Some(Seat { row_label: "A".to_owned(), seat_label: "7".to_owned() }),
            state,
            claim_id: ClaimId::generate(),
            code: Code::from_text("c".repeat(super::super::code::CODE_CHARS)),
            issue_time: Timestamp::from_secs(1),
            check_in: None,
            void_time: None,
        }
    }

    #[test]
    fn only_an_issued_ticket_admits_and_only_with_its_own_code() {
        let other = Code::from_text("other".to_owned());
        for (state, with_own, with_other) in [
            (TicketState::Issued, CheckInOutcome::Admitted, CheckInOutcome::CodeReplaced),
            (TicketState::CheckedIn, CheckInOutcome::AlreadyCheckedIn, CheckInOutcome::CodeReplaced),
            (TicketState::Void, CheckInOutcome::Void, CheckInOutcome::Void),
            (TicketState::Generated, CheckInOutcome::NotIssued, CheckInOutcome::NotIssued),
        ] {
            let ticket = ticket(state);
            assert_eq!(ticket.check_in(&ticket.code), with_own, "{state:?}");
            assert_eq!(ticket.check_in(&other), with_other, "{state:?}");
        }
    }

    #[test]
    fn the_code_is_shown_only_while_it_admits() {
        assert!(ticket(TicketState::Issued).valid_code().is_some());
        for state in [TicketState::Generated, TicketState::CheckedIn, TicketState::Void] {
            assert!(ticket(state).valid_code().is_none());
        }
    }
}
