//! Events that Claim publishes, and those of Queue and Payment that it handles.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{
    convert::{money_to_pb, time_to_pb},
    events::v1::{ClaimReleased, OrderCompleted, PaymentConfirmed, PaymentFailed, QueueExpired},
    queue::v1::ExpireReason,
};
use onsale_storage::messaging::{NewEvent, OutgoingEvent};
use onsale_types::{ClaimId, CustomerId, EventId, PaymentId, Timestamp};

use super::responses::{event_to_pb, item_to_pb, release_reason};
use crate::domain::{Claim, ClaimEvent, ConfirmClaim, EndedTurn, EntryEnd, Origin};

impl OutgoingEvent for ClaimEvent<'_> {
    fn to_new_event(&self) -> NewEvent {
        match *self {
            Self::OrderCompleted { claim, time } => NewEvent::new(claim.id, &order_completed(claim, time)),
            Self::ClaimReleased { claim, unit_count, time } => {
                NewEvent::new(claim.id, &claim_released(claim, unit_count, time))
            }
        }
    }
}

fn order_completed(claim: &Claim, time: Timestamp) -> OrderCompleted {
    OrderCompleted {
        claim_id: claim.id.to_string(),
        event: Some(event_to_pb(&claim.event)),
        customer_id: claim.customer_id.to_string(),
        buyer_email: claim.buyer.email.clone(),
        buyer_locale: claim.buyer.locale.clone(),
        items: claim.items.iter().map(item_to_pb).collect(),
        total: Some(money_to_pb(claim.total)),
        payment_id: claim.lifecycle.payment_id().map(|payment_id| payment_id.to_string()).unwrap_or_default(),
        fencing_number: fencing_number(claim),
        complete_time: Some(time_to_pb(time)),
    }
}

fn claim_released(claim: &Claim, unit_count: u32, time: Timestamp) -> ClaimReleased {
    ClaimReleased {
        claim_id: claim.id.to_string(),
        event: Some(event_to_pb(&claim.event)),
        customer_id: claim.customer_id.to_string(),
        reason: release_reason(claim.lifecycle.stage()).into(),
        unit_count,
        fencing_number: fencing_number(claim),
        release_time: Some(time_to_pb(time)),
    }
}

/// Returns the number of the claim's turn; 0, which means unset, for a claim by invitation.
fn fencing_number(claim: &Claim) -> u64 {
    match claim.origin {
        Origin::Turn { fencing_number } => fencing_number,
        Origin::Invitation { .. } => 0,
    }
}

/// Reads `payment.confirmed`, which is handled like `ConfirmClaim`.
pub(crate) fn payment_confirmed(event: &PaymentConfirmed) -> Result<ConfirmClaim, InvalidFields> {
    let mut violations = Violations::new();
    let claim_id = violations.check("claim_id", ClaimId::parse(&event.claim_id));
    let payment_id = violations.check("payment_id", PaymentId::parse(&event.payment_id));
    let amount = violations.require_money("amount", event.amount.clone());
    violations.build(|| Some(ConfirmClaim { claim_id: claim_id?, payment_id: payment_id?, amount: amount? }))
}

/// Reads the claim whose payment failed.
pub(crate) fn payment_failed(event: &PaymentFailed) -> Result<ClaimId, InvalidFields> {
    let mut violations = Violations::new();
    let claim_id = violations.check("claim_id", ClaimId::parse(&event.claim_id));
    violations.build(|| claim_id)
}

/// Reads the turn that an entry lost, or returns `None` if its open claim keeps its own time.
pub(crate) fn queue_expired(event: &QueueExpired) -> Result<Option<EndedTurn>, InvalidFields> {
    let end = match event.reason() {
        ExpireReason::Left => EntryEnd::Left,
        ExpireReason::Blocked => EntryEnd::Blocked,
        ExpireReason::Unspecified
        | ExpireReason::NotSeen
        | ExpireReason::TurnExpired
        | ExpireReason::QueueClosed => EntryEnd::Other,
    };
    let fencing_number = event.fencing_number;
    let Some(reason) = end.releases_claim(fencing_number) else { return Ok(None) };
    let mut violations = Violations::new();
    let summary = violations.require("event", event.event.as_ref());
    let event_id = summary.and_then(|it| violations.check("event.event_id", EventId::parse(&it.event_id)));
    let customer_id = violations.check("customer_id", CustomerId::parse(&event.customer_id));
    violations.build(|| {
        Some(Some(EndedTurn { event_id: event_id?, customer_id: customer_id?, fencing_number, reason }))
    })
}
