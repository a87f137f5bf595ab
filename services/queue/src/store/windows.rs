//! What a WINDOWED queue stores besides its line: the tickets that bought something.

use onsale_storage::postgres::{Postgres, Row, Transaction};
use onsale_types::{ClaimId, EventId, Timestamp};

use super::{queues::events, sql_count, sql_time, uuid};
use crate::{
    domain::{policy::Policy, windowed_entry::WindowedEntry},
    error::Error,
};

const SLIDING: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE state = 'OPEN' AND mode = 'WINDOWED' AND waiting_count > 0 AND coalesce(admissions_per_minute, $1) > 0
        AND coalesce(slide_time + coalesce(slide_seconds * 1000000, $2) * interval '1 microsecond' <= now(), true)";
const USED: &str = "SELECT claim_id FROM used_ticket WHERE event_id = $1 AND seq = $2";
const USE: &str =
    "INSERT INTO used_ticket (event_id, seq, customer_id, claim_id, use_time) VALUES ($1, $2, $3, $4, $5)";

/// Events whose window may slide now.
pub(crate) async fn sliding(postgres: &Postgres, defaults: &Policy) -> Result<Vec<EventId>, Error> {
    let micros = i64::try_from(defaults.slide_interval.as_micros()).unwrap_or(i64::MAX);
    let rate = i64::from(defaults.admissions_per_minute);
    events(postgres.query("find sliding", SLIDING, &[&rate, &micros]).await?)
}

/// The claim that a ticket was used for.
pub(crate) async fn used(postgres: &Postgres, event_id: EventId, seq: u64) -> Result<Option<ClaimId>, Error> {
    let row = postgres.query_opt("used ticket", USED, &[&event_id.as_uuid(), &sql_count(seq)]).await?;
    row.as_ref().map(claim).transpose()
}

/// The same, in a transaction.
pub(crate) async fn used_in(
    transaction: &Transaction,
    event_id: EventId,
    seq: u64,
) -> Result<Option<ClaimId>, Error> {
    let row = transaction.query_opt(USED, &[&event_id.as_uuid(), &sql_count(seq)]).await?;
    row.as_ref().map(claim).transpose()
}

/// Notes what a ticket was used for.
pub(crate) async fn mark_used(
    transaction: &Transaction,
    ticket: &WindowedEntry,
    claim_id: ClaimId,
    now: Timestamp,
) -> Result<(), Error> {
    transaction
        .execute(
            USE,
            &[
                &ticket.event_id.as_uuid(),
                &sql_count(ticket.seq),
                &ticket.customer_id.as_uuid(),
                &claim_id.as_uuid(),
                &sql_time(now),
            ],
        )
        .await?;
    Ok(())
}

fn claim(row: &Row) -> Result<ClaimId, Error> {
    Ok(ClaimId::from_uuid(uuid(row, "claim_id")?))
}
