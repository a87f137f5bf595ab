//! Orders of which only a part has arrived: the completed order without its tickets, or the reverse.

use onsale_storage::postgres::{Error, Json, Transaction, row::RowExt as _};
use onsale_types::ClaimId;

use crate::domain::order::WaitingOrder;

// Inserts the row if there is none, so that there is always a row to lock: two events of one order are handled one after the
// other.
const LOCK: &str = "INSERT INTO waiting_order (claim_id) VALUES ($1)
    ON CONFLICT (claim_id) DO UPDATE SET claim_id = excluded.claim_id RETURNING order_fact, tickets";
const SAVE: &str = "UPDATE waiting_order SET order_fact = $2, tickets = $3 WHERE claim_id = $1";
const REMOVE: &str = "DELETE FROM waiting_order WHERE claim_id = $1";

/// Returns the parts that have arrived, possibly none, and locks the order until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction, claim_id: ClaimId) -> Result<WaitingOrder, Error> {
    let row = transaction.query_one(LOCK, &[&claim_id.as_uuid()]).await?;
    Ok(WaitingOrder { order: row.read_optional_json("order_fact")?, tickets: row.read_json("tickets")? })
}

/// Saves the parts that still wait, or deletes the row if there are none.
pub(crate) async fn save(
    transaction: &Transaction,
    claim_id: ClaimId,
    waiting: Option<&WaitingOrder>,
) -> Result<(), Error> {
    let Some(waiting) = waiting else {
        transaction.execute(REMOVE, &[&claim_id.as_uuid()]).await?;
        return Ok(());
    };
    let (order, tickets) = (waiting.order.as_ref().map(Json), Json(&waiting.tickets));
    transaction.execute(SAVE, &[&claim_id.as_uuid(), &order, &tickets]).await?;
    Ok(())
}
