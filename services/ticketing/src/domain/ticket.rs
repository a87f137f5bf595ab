//! Tickets: their states, the decision at the gate, and lists of a customer's tickets.

use onsale_types::{ClaimId, CustomerId, EventId, PageQuery, PageSize, SectorId, TicketId, Timestamp};

use super::{
    check_in::{CheckIn, CheckInOutcome},
    code::Code,
    event::{EventSummary, Seat},
};

/// State of a ticket. Names are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum TicketState {
    /// Belongs to nobody yet.
    Generated,
    /// Belongs to a customer and admits once.
    Issued,
    /// Has admitted. Final.
    CheckedIn,
    /// Admits nobody. Final.
    Void,
}

/// A ticket that was issued, in any later state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) ticket_id: TicketId,
    pub(crate) event: EventSummary,
    pub(crate) sector_id: SectorId,
    pub(crate) sector_name: String,
    /// Number of the unit in the sector, from 1.
    pub(crate) unit: u32,
    /// `None` in general admission.
    pub(crate) seat: Option<Seat>,
    pub(crate) state: TicketState,
    pub(crate) claim_id: ClaimId,
    /// Code as it was issued. It admits only while [`Ticket::valid_code`] returns it.
    pub(crate) code: Code,
    pub(crate) issue_time: Timestamp,
    /// `None` unless CHECKED_IN.
    pub(crate) check_in: Option<CheckIn>,
    /// `None` unless VOID.
    pub(crate) void_time: Option<Timestamp>,
}

/// Selects tickets of a customer; a ticket must pass all parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct TicketFilter {
    pub(crate) event_id: Option<EventId>,
    pub(crate) claim_id: Option<ClaimId>,
    /// Permitted states. Empty: all.
    pub(crate) states: Vec<TicketState>,
}

/// Position of a ticket in a list. Later start times come first, then higher ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListPosition {
    pub(crate) start_time: Timestamp,
    pub(crate) ticket_id: TicketId,
}

/// Command of `ListTickets`.
#[derive(Debug)]
pub(crate) struct ListTickets {
    pub(crate) customer_id: CustomerId,
    pub(crate) filter: TicketFilter,
    /// Position of the last ticket on the previous page. `None`: this is the first page.
    pub(crate) after: Option<ListPosition>,
    pub(crate) page_size: PageSize,
    /// Query to which page tokens are bound.
    pub(crate) query: PageQuery,
}

#[derive(Debug)]
pub(crate) struct TicketPage {
    pub(crate) tickets: Vec<Ticket>,
    /// Position of the page's last ticket. `None`: no further page exists.
    pub(crate) next: Option<ListPosition>,
}

impl TicketPage {
    /// Cuts the page from `found`, which has one ticket more than the page if a further page exists.
    pub(crate) fn new(mut found: Vec<Ticket>, page_size: PageSize) -> Self {
        let rows = usize::try_from(page_size.rows()).unwrap_or(usize::MAX);
        let has_more = found.len() > rows;
        found.truncate(rows);
        let last = found.last().filter(|_| has_more);
        let next =
            last.map(|last| ListPosition { start_time: last.event.start_time, ticket_id: last.ticket_id });
        Self { tickets: found, next }
    }
}

impl Ticket {
    /// Returns the code while it admits.
    pub(crate) fn valid_code(&self) -> Option<&Code> {
        (self.state == TicketState::Issued).then_some(&self.code)
    }

    /// Decides whether the bearer of `code` is admitted. The code's signature must have been verified.
    pub(crate) fn check_in(&self, code: &Code) -> CheckInOutcome {
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
    fn only_an_issued_ticket_with_its_own_code_admits() {
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
    fn code_is_shown_only_while_it_admits() {
        assert!(ticket(TicketState::Issued).valid_code().is_some());
        for state in [TicketState::Generated, TicketState::CheckedIn, TicketState::Void] {
            assert!(ticket(state).valid_code().is_none());
        }
    }
}
