//! WINDOWED queues in Postgres: the entries that were used for a purchase, and the queues whose window is due.

use onsale_storage::postgres::{
    Postgres, Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime},
};
use onsale_types::{ClaimId, EventId, Timestamp};

use super::queues::read_events;
use crate::{
    domain::{policy::Policy, windowed_entry::WindowedEntry},
    error::Error,
};

const SLIDING: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE state = 'OPEN' AND mode = 'WINDOWED' AND waiting_count > 0 AND coalesce(admissions_per_minute, $1) > 0
        AND coalesce(slide_time + coalesce(slide_seconds * 1000000, $2) * interval '1 microsecond' <= now(), true)";
const FIND: &str = "SELECT claim_id FROM used_ticket WHERE event_id = $1 AND seq = $2";
const MARK_USED: &str =
    "INSERT INTO used_ticket (event_id, seq, customer_id, claim_id, use_time) VALUES ($1, $2, $3, $4, $5)";

/// Returns the events whose window is due to slide.
pub(crate) async fn due(postgres: &Postgres, defaults: &Policy) -> Result<Vec<EventId>, Error> {
    let micros = super::queues::micros(defaults.slide_interval)?;
    let rate = SqlCount(u64::from(defaults.admissions_per_minute));
    read_events(postgres.query("find sliding", SLIDING, &[&rate, &micros]).await?)
}

/// Returns the claim for which an entry was used; `None` if it was not.
pub(crate) async fn used_by(
    postgres: &Postgres,
    event_id: EventId,
    seq: u64,
) -> Result<Option<ClaimId>, Error> {
    let row = postgres.query_opt("used ticket", FIND, &[&event_id.as_uuid(), &SqlCount(seq)]).await?;
    row.as_ref().map(read_claim).transpose()
}

/// Like [`used_by`], in a transaction.
pub(crate) async fn used_by_in(
    transaction: &Transaction,
    event_id: EventId,
    seq: u64,
) -> Result<Option<ClaimId>, Error> {
    let row = transaction.query_opt(FIND, &[&event_id.as_uuid(), &SqlCount(seq)]).await?;
    row.as_ref().map(read_claim).transpose()
}

/// Records that an entry was used for a claim.
pub(crate) async fn mark_used(
    transaction: &Transaction,
    entry: &WindowedEntry,
    claim_id: ClaimId,
    now: Timestamp,
) -> Result<(), Error> {
    let (event, customer) = (entry.event_id.as_uuid(), entry.customer_id.as_uuid());
    transaction
        .execute(MARK_USED, &[&event, &SqlCount(entry.seq), &customer, &claim_id.as_uuid(), &SqlTime(now)])
        .await?;
    Ok(())
}

fn read_claim(row: &Row) -> Result<ClaimId, Error> {
    Ok(row.read_id("claim_id")?)
}
