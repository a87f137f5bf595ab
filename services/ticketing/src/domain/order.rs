//! A paid order and whether its tickets can be issued now.

use onsale_types::{ClaimId, CustomerId, EventId, SectorId};

use super::ticket::TicketState;

/// One unit of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderedUnit {
    /// The sector.
    pub sector_id: SectorId,
    /// The unit's number in it.
    pub unit: u32,
}

/// A confirmed claim: what was bought, and by whom.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// The claim.
    pub claim_id: ClaimId,
    /// The event.
    pub event_id: EventId,
    /// The buyer.
    pub customer_id: CustomerId,
    /// The buyer's verified address.
    pub buyer_email: String,
    /// The buyer's language; none: the default of whoever writes to them.
    pub buyer_locale: Option<String>,
    /// The units, distinct, at least one.
    pub units: Vec<OrderedUnit>,
}

/// Without the address.
impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Order")
            .field("claim_id", &self.claim_id)
            .field("event_id", &self.event_id)
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}

/// What is known about a claim's tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssuanceState {
    /// Paid; the tickets are not issued yet.
    Pending,
    /// Issued.
    Issued,
    /// A unit's ticket was another's. Never by our own doing.
    Refused,
    /// The money went back: the claim gets no tickets any more.
    Void,
}

/// What to do with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Issue all of its tickets.
    Issue,
    /// Some do not exist yet: wait.
    Wait,
    /// Some are another's: refuse, and change nothing.
    Refuse,
    /// The money went back: there is nothing to issue any more.
    Drop,
    /// It was done before.
    Done,
}

/// Decides on an order whose claim is in `state` and which names `wanted` units; `found` are the states of those tickets
/// of them that exist.
#[must_use]
pub fn decide(state: IssuanceState, wanted: usize, found: &[TicketState]) -> Decision {
    match state {
        IssuanceState::Issued => Decision::Done,
        IssuanceState::Void => Decision::Drop,
        // A refused order may be tried again by a human who has put things right.
        IssuanceState::Pending | IssuanceState::Refused => {
            if found.iter().any(|state| *state != TicketState::Generated) {
                Decision::Refuse
            } else if found.len() < wanted {
                Decision::Wait
            } else {
                Decision::Issue
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: TicketState = TicketState::Generated;

    #[test]
    fn an_order_is_issued_when_all_its_tickets_exist_and_are_free() {
        assert_eq!(decide(IssuanceState::Pending, 2, &[FREE, FREE]), Decision::Issue);
    }

    #[test]
    fn an_order_waits_for_a_ticket_that_does_not_exist() {
        assert_eq!(decide(IssuanceState::Pending, 2, &[FREE]), Decision::Wait);
        assert_eq!(decide(IssuanceState::Pending, 2, &[]), Decision::Wait);
    }

    #[test]
    fn an_order_is_refused_when_any_ticket_is_taken_even_if_others_are_missing() {
        for taken in [TicketState::Issued, TicketState::CheckedIn, TicketState::Void] {
            assert_eq!(decide(IssuanceState::Pending, 2, &[FREE, taken]), Decision::Refuse);
            assert_eq!(decide(IssuanceState::Pending, 2, &[taken]), Decision::Refuse);
        }
    }

    #[test]
    fn a_void_claim_gets_no_tickets_and_an_issued_one_no_others() {
        assert_eq!(decide(IssuanceState::Void, 1, &[FREE]), Decision::Drop);
        assert_eq!(decide(IssuanceState::Issued, 1, &[FREE]), Decision::Done);
    }
}
