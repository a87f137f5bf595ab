//! What there is to know of customers who come to claim something, all that come together with one look and without a lock:
//! good enough to refuse early, never to allow.

use onsale_storage::postgres::{Postgres, Row, column};
use onsale_types::{ClaimId, CustomerId, EventId, Timestamp};
use uuid::Uuid;

use super::{allowances, hold_attempts::Latest, row};
use crate::{domain::Allowance, error::Error};

// Each look is one of an index: `LIMIT` keeps the planner from joining with the whole table instead.
const LOOK: &str = "SELECT latest.attempt, latest.state, latest.fingerprint, latest.claim_id,
        kept.units_max, kept.units_taken, kept.abandoned_count, kept.abandoned_at,
        open.claim_id AS open_claim_id, now() AS database_now
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS asked (hold_key, event_id, customer_id, place)
    LEFT JOIN LATERAL (SELECT attempt, state, fingerprint, claim_id FROM hold_attempt
        WHERE hold_key = asked.hold_key ORDER BY attempt DESC LIMIT 1) latest ON true
    LEFT JOIN LATERAL (SELECT units_max, units_taken, abandoned_count, abandoned_at FROM allowance
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id LIMIT 1) kept ON true
    LEFT JOIN LATERAL (SELECT claim_id FROM claim
        WHERE event_id = asked.event_id AND customer_id = asked.customer_id AND state = 'CLAIMED' LIMIT 1) open ON true
    ORDER BY asked.place";

/// Who comes, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// Names the wish.
    pub cause: Uuid,
    /// In which event.
    pub event: EventId,
    /// Who.
    pub customer: CustomerId,
}

/// What is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The last hold asked for on behalf of the wish.
    pub latest: Option<Latest>,
    /// What the customer has of the event; none before the first claim.
    pub allowance: Option<Allowance>,
    /// The customer's open claim.
    pub open_claim: Option<ClaimId>,
    /// The time by the database's clock.
    pub now: Timestamp,
}

/// What is known of each of `visitors`, in their order.
pub async fn look(postgres: &Postgres, visitors: &[Visitor]) -> Result<Vec<Known>, Error> {
    let causes: Vec<Uuid> = visitors.iter().map(|it| it.cause).collect();
    let events: Vec<Uuid> = visitors.iter().map(|it| it.event.as_uuid()).collect();
    let customers: Vec<Uuid> = visitors.iter().map(|it| it.customer.as_uuid()).collect();
    let found = postgres.query("look", LOOK, &[&causes, &events, &customers]).await?;
    found.iter().map(known).collect()
}

fn known(found: &Row) -> Result<Known, Error> {
    let has_hold = column::<Option<i32>>(found, "attempt")?.is_some();
    let has_allowance = column::<Option<i32>>(found, "units_max")?.is_some();
    Ok(Known {
        latest: if has_hold { Some(Latest::read(found)?) } else { None },
        allowance: if has_allowance { Some(allowances::allowance(found)?) } else { None },
        open_claim: column::<Option<Uuid>>(found, "open_claim_id")?.map(ClaimId::from_uuid),
        now: row::timestamp(found, "database_now")?,
    })
}
