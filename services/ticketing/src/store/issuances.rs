//! Issuances: orders and the state of their tickets, one row per claim.

use std::time::Duration;

use onsale_storage::{
    due::{BackoffBounds, DueTable},
    due_table,
    postgres::{self, Parameters, Postgres, Row, Transaction, row::RowExt as _},
};
use onsale_types::{ClaimId, EventId, Named as _};

use super::unit_arrays;
use crate::domain::order::{IssuanceState, Order, OrderedUnit};

/// Orders that wait for their tickets. A lease is also the wait before the next attempt, so an order that always fails does not
/// delay the others.
const PENDING: DueTable = due_table! {
    table: "issuance",
    id: "claim_id",
    due: "next_attempt_time",
    attempts: "attempt_count",
    condition: "state = 'PENDING'",
    make_due_by: "event_id",
    returning: "claim_id, event_id, customer_id, buyer_email, buyer_locale, sector_ids, units, attempt_count",
};
/// Lease of a pending order's first attempt. It doubles with each further one.
const LEASE_INITIAL: Duration = Duration::from_secs(1);

const INSERT_PENDING: &str = "INSERT INTO issuance
        (claim_id, state, event_id, customer_id, buyer_email, buyer_locale, sector_ids, units)
    VALUES ($1, 'PENDING', $2, $3, $4, $5, $6, $7) ON CONFLICT (claim_id) DO NOTHING";
const INSERT_VOID: &str = "INSERT INTO issuance (claim_id, state) VALUES ($1, 'VOID')
    ON CONFLICT (claim_id) DO NOTHING";
// Issuing and voiding a claim's tickets both take this lock, so they run one after the other.
const LOCK: &str = "SELECT state FROM issuance WHERE claim_id = $1 FOR UPDATE";
const SET_STATE: &str = "UPDATE issuance SET state = $2 WHERE claim_id = $1";
const COUNT_PENDING: &str = "SELECT count(*)::integer AS count FROM issuance WHERE state = 'PENDING'";

/// A pending order that is leased to one issuer.
#[derive(Debug)]
pub(crate) struct LeasedOrder {
    pub(crate) claim_id: ClaimId,
    /// Number of times the order was leased, this time included.
    pub(crate) attempts: u32,
    /// Error if the row has an unreadable value. The row stays leased, so other orders are next.
    pub(crate) order: Result<Order, postgres::Error>,
}

/// Inserts the order as PENDING unless its claim has an issuance, locks the issuance and returns its state.
pub(crate) async fn lock_for_issue(
    transaction: &Transaction,
    order: &Order,
) -> Result<IssuanceState, postgres::Error> {
    let (sector_ids, units) = unit_arrays(&order.units);
    let values: Parameters<'_> = &[
        &order.claim_id.as_uuid(),
        &order.event_id.as_uuid(),
        &order.customer_id.as_uuid(),
        &order.buyer_email,
        &order.buyer_locale,
        &sector_ids,
        &units,
    ];
    transaction.execute(INSERT_PENDING, values).await?;
    lock(transaction, order.claim_id).await
}

/// Inserts a VOID issuance unless the claim has one, locks the issuance and returns its state. If that is not VOID, the caller
/// must call [`set_state`].
pub(crate) async fn lock_for_void(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<IssuanceState, postgres::Error> {
    transaction.execute(INSERT_VOID, &[&claim_id.as_uuid()]).await?;
    lock(transaction, claim_id).await
}

async fn lock(transaction: &Transaction, claim_id: ClaimId) -> Result<IssuanceState, postgres::Error> {
    transaction.query_one(LOCK, &[&claim_id.as_uuid()]).await?.read_named("state")
}

/// Sets the state of a locked issuance.
pub(crate) async fn set_state(
    transaction: &Transaction,
    claim_id: ClaimId,
    state: IssuanceState,
) -> Result<(), postgres::Error> {
    transaction.execute(SET_STATE, &[&claim_id.as_uuid(), &state.name()]).await.map(drop)
}

/// Leases the pending order that has been due for the longest time. The lease lasts 1 s for the first attempt, doubles with each
/// further one, and lasts at most `lease_max`.
pub(crate) async fn lease_pending(
    postgres: &Postgres,
    lease_max: Duration,
) -> Result<Option<LeasedOrder>, postgres::Error> {
    let lease = BackoffBounds { initial: LEASE_INITIAL, max: lease_max };
    let rows = PENDING.lease(postgres, "take waiting order", lease, 1).await?;
    let leased = rows.first().map(|row| {
        Ok(LeasedOrder {
            claim_id: row.read_id("claim_id")?,
            attempts: row.read_count("attempt_count")?,
            order: order(row),
        })
    });
    leased.transpose()
}

/// Makes all pending orders of an event due now.
pub(crate) async fn make_due(transaction: &Transaction, event_id: EventId) -> Result<(), postgres::Error> {
    PENDING.make_due_in(transaction, event_id, Duration::ZERO).await
}

pub(crate) async fn count_pending(postgres: &Postgres) -> Result<u32, postgres::Error> {
    postgres.query_one("count pending orders", COUNT_PENDING, &[]).await?.read_count("count")
}

fn order(row: &Row) -> Result<Order, postgres::Error> {
    let sector_ids = row.read_ids("sector_ids")?;
    let units = row.read_counts("units")?;
    let units = sector_ids.into_iter().zip(units).map(|(sector_id, unit)| OrderedUnit { sector_id, unit });
    Ok(Order {
        claim_id: row.read_id("claim_id")?,
        event_id: row.read_id("event_id")?,
        customer_id: row.read_id("customer_id")?,
        buyer_email: row.read("buyer_email")?,
        buyer_locale: row.read("buyer_locale")?,
        units: units.collect(),
    })
}
