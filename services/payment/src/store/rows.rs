//! From rows to domain types. A row that our own constraints should have refused is a fault, never a guess.

use std::time::SystemTime;

use onsale_storage::postgres::{Error, Row, column};
use onsale_types::{ClaimId, Currency, CustomerId, EventId, Money, PaymentId, Timestamp};
use uuid::Uuid;

use crate::domain::{FailureReason, Payment, Provider, Refund, RefundReason, RefundState, State};

/// A payment with its refund, as `payments` selects them.
pub(super) fn payment(row: &Row) -> Result<Payment, Error> {
    let currency = named(row, "currency_code", |code| Currency::parse(code).ok())?;
    Ok(Payment {
        id: PaymentId::from_uuid(column(row, "payment_id")?),
        claim_id: ClaimId::from_uuid(column(row, "claim_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        customer_id: CustomerId::from_uuid(column(row, "customer_id")?),
        amount: Money::new(column(row, "amount_minor")?, currency),
        provider: named(row, "provider", Provider::from_name)?,
        state: named(row, "state", State::from_name)?,
        return_url: column(row, "return_url")?,
        cancel_url: column(row, "cancel_url")?,
        create_time: time(row, "created_at")?,
        expire_time: time(row, "expires_at")?,
        reference: column(row, "reference")?,
        checkout_url: column(row, "checkout_url")?,
        charge: column(row, "charge")?,
        failure_reason: optional_name(row, "failure_reason", FailureReason::from_name)?,
        confirm_time: optional_time(row, "confirmed_at")?,
        settle_time: optional_time(row, "settled_at")?,
        refund: refund(row)?,
    })
}

fn refund(row: &Row) -> Result<Option<Refund>, Error> {
    let Some(id) = column::<Option<Uuid>>(row, "refund_id")? else { return Ok(None) };
    Ok(Some(Refund {
        id,
        reason: named(row, "refund_reason", RefundReason::from_name)?,
        state: named(row, "refund_state", RefundState::from_name)?,
        create_time: time(row, "refund_created_at")?,
        complete_time: optional_time(row, "refund_completed_at")?,
    }))
}

pub(super) fn time(row: &Row, name: &'static str) -> Result<Timestamp, Error> {
    // Postgres' years fit; were it otherwise, the end of time is as wrong as anything.
    Ok(Timestamp::from_system_time(column(row, name)?).unwrap_or(Timestamp::EPOCH))
}

fn optional_time(row: &Row, name: &'static str) -> Result<Option<Timestamp>, Error> {
    Ok(column::<Option<SystemTime>>(row, name)?.and_then(Timestamp::from_system_time))
}

fn named<T>(row: &Row, name: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
    optional_name(row, name, read)?.ok_or(Error::RowCount { label: name, count: 0 })
}

fn optional_name<T>(
    row: &Row,
    name: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(text) = column::<Option<&str>>(row, name)? else { return Ok(None) };
    read(text).map(Some).ok_or(Error::RowCount { label: name, count: 0 })
}
