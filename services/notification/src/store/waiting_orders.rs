//! Orders that wait for their other half.

use onsale_storage::postgres::{Transaction, column};
use onsale_types::ClaimId;
use serde_json::Value;

use super::{Error, from_json, to_json};
use crate::domain::order::Waiting;

// Makes the row where there is none, so that there is one to lock; two facts of one order are taken in one after the other.
const LOCK: &str = "INSERT INTO waiting_order (claim_id) VALUES ($1)
    ON CONFLICT (claim_id) DO UPDATE SET claim_id = excluded.claim_id RETURNING order_fact, tickets";
const SAVE: &str = "UPDATE waiting_order SET order_fact = $2, tickets = $3 WHERE claim_id = $1";
const REMOVE: &str = "DELETE FROM waiting_order WHERE claim_id = $1";

/// What is known of an order; locked until the transaction ends, also when nothing is.
pub async fn lock(transaction: &Transaction, claim_id: ClaimId) -> Result<Waiting, Error> {
    let row = transaction.query_one(LOCK, &[&claim_id.as_uuid()]).await?;
    let order: Option<Value> = column(&row, "order_fact")?;
    Ok(Waiting {
        order: order.map(|order| from_json("order_fact", order)).transpose()?,
        tickets: from_json("tickets", column(&row, "tickets")?)?,
    })
}

/// Keeps what goes on waiting, or forgets the order when nothing does.
pub async fn save(
    transaction: &Transaction,
    claim_id: ClaimId,
    waiting: Option<&Waiting>,
) -> Result<(), Error> {
    let Some(waiting) = waiting else {
        transaction.execute(REMOVE, &[&claim_id.as_uuid()]).await?;
        return Ok(());
    };
    let order = waiting.order.as_ref().map(|order| to_json("order_fact", order)).transpose()?;
    let tickets = to_json("tickets", &waiting.tickets)?;
    transaction.execute(SAVE, &[&claim_id.as_uuid(), &order, &tickets]).await?;
    Ok(())
}
