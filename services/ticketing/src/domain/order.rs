//! Paid orders, and the decision to issue their tickets.

use onsale_types::{ClaimId, CustomerId, EventId, SectorId};

use super::ticket::TicketState;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderedUnit {
    pub(crate) sector_id: SectorId,
    /// Number of the unit in the sector, from 1.
    pub(crate) unit: u32,
}

/// A confirmed claim. It has the claim's id.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) claim_id: ClaimId,
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Verified email address of the buyer.
    pub(crate) buyer_email: String,
    /// BCP 47 tag of the buyer's language. `None`: the default of Notification.
    pub(crate) buyer_locale: Option<String>,
    /// Distinct units, at least one.
    pub(crate) units: Vec<OrderedUnit>,
}

/// Leaves out the buyer's address.
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

/// State of an order's tickets. Names are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum IssuanceState {
    /// Paid, but some tickets are not generated yet.
    Pending,
    Issued,
    /// A ticket belonged to another claim, which no step of ours causes.
    Refused,
    /// The payment is refunded. The claim receives no tickets any more.
    Void,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IssueDecision {
    /// Issue all tickets.
    Issue,
    /// Some tickets are not generated yet: issue none, and retry later.
    Wait,
    /// Some tickets belong to other claims: issue none.
    Refuse,
    AlreadyVoid,
    AlreadyIssued,
}

/// Decides whether to issue an order of `unit_count` units. `found` has the state of each of its tickets that is generated.
pub(crate) fn decide_issue(state: IssuanceState, unit_count: usize, found: &[TicketState]) -> IssueDecision {
    match state {
        IssuanceState::Issued => IssueDecision::AlreadyIssued,
        IssuanceState::Void => IssueDecision::AlreadyVoid,
        // A refused order can be issued after an operator has freed its tickets.
        IssuanceState::Pending | IssuanceState::Refused => {
            if found.iter().any(|state| *state != TicketState::Generated) {
                IssueDecision::Refuse
            } else if found.len() < unit_count {
                IssueDecision::Wait
            } else {
                IssueDecision::Issue
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: TicketState = TicketState::Generated;

    #[test]
    fn order_is_issued_when_all_its_tickets_exist_and_are_free() {
        assert_eq!(decide_issue(IssuanceState::Pending, 2, &[FREE, FREE]), IssueDecision::Issue);
    }

    #[test]
    fn order_waits_for_a_ticket_that_is_not_generated() {
        assert_eq!(decide_issue(IssuanceState::Pending, 2, &[FREE]), IssueDecision::Wait);
        assert_eq!(decide_issue(IssuanceState::Pending, 2, &[]), IssueDecision::Wait);
    }

    #[test]
    fn order_is_refused_if_a_ticket_is_taken_and_others_are_missing() {
        for taken in [TicketState::Issued, TicketState::CheckedIn, TicketState::Void] {
            assert_eq!(decide_issue(IssuanceState::Pending, 2, &[FREE, taken]), IssueDecision::Refuse);
            assert_eq!(decide_issue(IssuanceState::Pending, 2, &[taken]), IssueDecision::Refuse);
        }
    }

    #[test]
    fn void_claim_gets_no_tickets_and_issued_claim_keeps_its_own() {
        assert_eq!(decide_issue(IssuanceState::Void, 1, &[FREE]), IssueDecision::AlreadyVoid);
        assert_eq!(decide_issue(IssuanceState::Issued, 1, &[FREE]), IssueDecision::AlreadyIssued);
    }
}
