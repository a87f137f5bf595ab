//! Blocked customers in Postgres. They are written and checked under the lock of the line, so that no blocked customer can join
//! while the block is written.

use onsale_storage::postgres::{
    Postgres, Transaction,
    row::{RowExt as _, SqlTime},
};
use onsale_types::{CustomerId, EventId, Timestamp};

use crate::{domain::block::Block, error::Error};

// The update changes nothing; it makes the statement return the existing row.
const ADD: &str =
    "INSERT INTO blocked_customer (event_id, customer_id, note, block_time) VALUES ($1, $2, $3, $4)
    ON CONFLICT (event_id, customer_id) DO UPDATE SET note = blocked_customer.note
    RETURNING note, block_time";
const REMOVE: &str = "DELETE FROM blocked_customer WHERE event_id = $1 AND customer_id = $2";
const FIND: &str = "SELECT FROM blocked_customer WHERE event_id = $1 AND customer_id = $2";

/// Blocks the customer. A customer who is blocked already keeps the first note and time.
pub(crate) async fn add(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
    note: &str,
    now: Timestamp,
) -> Result<Block, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let row = transaction.query_one(ADD, &[&event, &customer, &note, &SqlTime(now)]).await?;
    Ok(Block { event_id, customer_id, note: row.read("note")?, block_time: row.read_time("block_time")? })
}

/// Removes the block; returns true if there was one.
pub(crate) async fn remove(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<bool, Error> {
    let removed = transaction.execute(REMOVE, &[&event_id.as_uuid(), &customer_id.as_uuid()]).await?;
    Ok(removed > 0)
}

/// Returns true if the customer is blocked.
pub(crate) async fn is_blocked(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<bool, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    Ok(postgres.query_opt("blocked", FIND, &[&event, &customer]).await?.is_some())
}
