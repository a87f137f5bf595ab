//! Reads payment rows into domain types. An unreadable value is an error that names its column.

use onsale_storage::postgres::{Error, Row, row::RowExt as _};
use onsale_types::Money;
use uuid::Uuid;

use crate::domain::{Payment, Refund};

/// Reads a payment with its refund from a row that a SELECT of `payments` returned.
pub(super) fn payment(row: &Row) -> Result<Payment, Error> {
    Ok(Payment {
        id: row.read_id("payment_id")?,
        claim_id: row.read_id("claim_id")?,
        event_id: row.read_id("event_id")?,
        customer_id: row.read_id("customer_id")?,
        amount: Money::new(row.read("amount_minor")?, row.read_named("currency_code")?),
        provider: row.read_named("provider")?,
        state: row.read_named("state")?,
        return_url: row.read("return_url")?,
        cancel_url: row.read("cancel_url")?,
        create_time: row.read_time("created_at")?,
        expire_time: row.read_time("expires_at")?,
        reference: row.read("reference")?,
        checkout_url: row.read("checkout_url")?,
        charge: row.read("charge")?,
        failure_reason: row.read_optional_named("failure_reason")?,
        confirm_time: row.read_optional_time("confirmed_at")?,
        settle_time: row.read_optional_time("settled_at")?,
        refund: refund(row)?,
    })
}

fn refund(row: &Row) -> Result<Option<Refund>, Error> {
    let Some(id) = row.read::<Option<Uuid>>("refund_id")? else { return Ok(None) };
    Ok(Some(Refund {
        id,
        reason: row.read_named("refund_reason")?,
        state: row.read_named("refund_state")?,
        create_time: row.read_time("refund_created_at")?,
        complete_time: row.read_optional_time("refund_completed_at")?,
    }))
}
