//! Customers whom organizers keep out, in Postgres. Written and looked at under the lock of the line, so that nobody slips
//! in while being blocked.

use std::collections::HashSet;

use onsale_storage::postgres::{Postgres, Transaction, column};
use onsale_types::{CustomerId, EventId, Timestamp};
use uuid::Uuid;

use super::{sql_time, time, uuid};
use crate::{domain::block::Block, error::Error};

// The update changes nothing; it makes the row that is there come back.
const ADD: &str =
    "INSERT INTO blocked_customer (event_id, customer_id, note, block_time) VALUES ($1, $2, $3, $4)
    ON CONFLICT (event_id, customer_id) DO UPDATE SET note = blocked_customer.note
    RETURNING note, block_time";
const REMOVE: &str = "DELETE FROM blocked_customer WHERE event_id = $1 AND customer_id = $2";
const AMONG: &str = "SELECT customer_id FROM blocked_customer WHERE event_id = $1 AND customer_id = ANY($2)";

/// Blocks the customer; one who is blocked already stays so, with the first note and time.
pub(crate) async fn add(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
    note: &str,
    now: Timestamp,
) -> Result<Block, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let row = transaction.query_one(ADD, &[&event, &customer, &note, &sql_time(now)]).await?;
    Ok(Block { event_id, customer_id, note: column(&row, "note")?, block_time: time(&row, "block_time")? })
}

/// Ends the block; answers whether there was one.
pub(crate) async fn remove(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<bool, Error> {
    let removed = transaction.execute(REMOVE, &[&event_id.as_uuid(), &customer_id.as_uuid()]).await?;
    Ok(removed > 0)
}

/// Whether the customer is blocked.
pub(crate) async fn is_blocked(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<bool, Error> {
    let customers = [customer_id.as_uuid()];
    let rows = postgres.query("blocked", AMONG, &[&event_id.as_uuid(), &&customers[..]]).await?;
    Ok(!rows.is_empty())
}

/// Those of the customers who are blocked.
pub(crate) async fn among(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[Uuid],
) -> Result<HashSet<CustomerId>, Error> {
    let rows = transaction.query(AMONG, &[&event_id.as_uuid(), &customers]).await?;
    rows.iter().map(|row| Ok(CustomerId::from_uuid(uuid(row, "customer_id")?))).collect()
}
