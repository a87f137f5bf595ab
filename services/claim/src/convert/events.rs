//! What others hear of a claim.

use onsale_proto::events::v1::{ClaimReleased, OrderCompleted};
use onsale_types::Timestamp;

use super::{
    event_to_pb, money_to_pb,
    responses::{item_to_pb, release_reason},
    timestamp_to_pb,
};
use crate::domain::{Claim, Origin};

/// The claim was paid, and its units are sold.
#[must_use]
pub fn order_completed(claim: &Claim, now: Timestamp) -> OrderCompleted {
    OrderCompleted {
        claim_id: claim.id.to_string(),
        event: event_to_pb(&claim.event),
        customer_id: claim.customer.to_string(),
        buyer_email: claim.buyer.email.clone(),
        buyer_locale: claim.buyer.locale.clone(),
        items: claim.items.iter().map(item_to_pb).collect(),
        total: money_to_pb(claim.total),
        payment_id: claim.life.payment().map(|payment| payment.to_string()).unwrap_or_default(),
        fencing_number: fencing_number(claim),
        complete_time: timestamp_to_pb(now),
    }
}

/// The claim was given up; `unit_count` units go back with it.
#[must_use]
pub fn claim_released(claim: &Claim, unit_count: u32, now: Timestamp) -> ClaimReleased {
    ClaimReleased {
        claim_id: claim.id.to_string(),
        event: event_to_pb(&claim.event),
        customer_id: claim.customer.to_string(),
        reason: release_reason(claim.life.stage()).into(),
        unit_count,
        fencing_number: fencing_number(claim),
        release_time: timestamp_to_pb(now),
    }
}

/// Of the turn it was made in; unset without one.
fn fencing_number(claim: &Claim) -> u64 {
    match claim.origin {
        Origin::Turn { fencing_number } => fencing_number,
        Origin::Invitation { .. } => 0,
    }
}
