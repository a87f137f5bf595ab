//! Due deliveries, their leases, and the outcomes of attempts. All times are the database's, because the clocks of the
//! instances differ.
//!
//! `storage::due` does not fit: a lease decides for each delivery whether to send, skip or end it, and records the attempt in
//! the same transaction.

use std::time::Duration;

use onsale_storage::postgres::{
    Error, Postgres, Row, Transaction,
    row::{RowExt as _, SqlCount},
};
use onsale_types::{JobId, Named as _};
use uuid::Uuid;

use crate::domain::{
    content::{Content, Template},
    delivery::{AttemptOutcome, DeliveryState},
    language::Language,
    text::EmailAddress,
};

// A SENDING delivery is due again when its lease ends. Deliveries whose template only a newer version knows are left to the
// workers of that version.
const DUE: &str =
    "SELECT delivery_id, job_id, attempt_count, round_attempt_count, template, email, locale, content,
        coalesce(expire_at <= now(), false) AS is_expired
    FROM delivery JOIN job USING (job_id)
    WHERE state IN ('QUEUED', 'SENDING') AND due_at <= now() AND channel = 'EMAIL' AND template = ANY($2)
    ORDER BY due_at LIMIT $1 FOR UPDATE OF delivery SKIP LOCKED";
const END_LOST: &str = "UPDATE delivery_attempt SET ended_at = now(), error = $2
    WHERE delivery_id = ANY($1) AND ended_at IS NULL";
const BEGIN: &str = "WITH begun AS (
        UPDATE delivery SET state = 'SENDING', due_at = now() + make_interval(secs => $2),
            attempt_count = attempt_count + 1, round_attempt_count = round_attempt_count + 1
        WHERE delivery_id = ANY($1) RETURNING delivery_id, attempt_count
    )
    INSERT INTO delivery_attempt (delivery_id, number, provider)
    SELECT delivery_id, attempt_count, $3 FROM begun";
const END: &str =
    "UPDATE delivery SET state = $2, due_at = NULL, ended_at = now() WHERE delivery_id = ANY($1)";
// The attempt number excludes a worker whose lease has ended and whose delivery was leased again.
const DELIVERED: &str = "UPDATE delivery SET state = 'DELIVERED', due_at = NULL, ended_at = now()
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const RETRY: &str = "UPDATE delivery SET state = 'QUEUED',
        due_at = now() + make_interval(secs => $3) * (1 + random() / 10)
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const DEAD: &str = "UPDATE delivery SET state = 'DEAD', due_at = NULL, ended_at = now()
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const END_ATTEMPT: &str = "UPDATE delivery_attempt SET ended_at = now(), error = $3, provider_message_id = $4
    WHERE delivery_id = $1 AND number = $2 AND ended_at IS NULL";
const COUNTS: &str = "SELECT (SELECT count(*) FROM delivery WHERE state = 'DEAD') AS dead,
    (SELECT count(*) FROM delivery WHERE state IN ('QUEUED', 'SENDING')) AS open,
    (SELECT count(*) FROM waiting_order WHERE created_at < now() - interval '10 minutes') AS waiting";

/// Error recorded for an attempt whose worker crashed.
const LOST: &str = "the worker stopped before it recorded the outcome; the mail may have been sent";

/// Delivery that is due, with its job.
#[derive(Debug)]
pub(crate) struct DueDelivery {
    pub(crate) delivery_id: Uuid,
    pub(crate) job_id: JobId,
    pub(crate) template: Template,
    /// Number of attempts so far, in all rounds.
    pub(crate) attempts: u32,
    /// Number of attempts since the delivery was queued, or last retried by an organizer.
    pub(crate) round_attempts: u32,
    pub(crate) is_expired: bool,
    pub(crate) email: EmailAddress,
    pub(crate) language: Language,
    /// An error if the JSON does not fit this version. It fails this delivery only, not the whole batch.
    pub(crate) content: Result<Content, Error>,
}

/// Returns up to `max` due deliveries, longest due first, and locks them until the transaction ends.
pub(crate) async fn due(transaction: &Transaction, max: usize) -> Result<Vec<DueDelivery>, Error> {
    let templates: Vec<&str> = Template::ALL.iter().map(|it| it.name()).collect();
    transaction.query(DUE, &[&SqlCount(max), &templates]).await?.iter().map(due_delivery).collect()
}

/// Marks deliveries as SENDING for `lease` and records an attempt of each. Commit before anything is sent.
pub(crate) async fn begin(
    transaction: &Transaction,
    delivery_ids: &[Uuid],
    lease: Duration,
    provider: &str,
) -> Result<(), Error> {
    transaction.execute(BEGIN, &[&delivery_ids, &lease.as_secs_f64(), &provider]).await?;
    Ok(())
}

/// Ends the attempts whose workers crashed.
pub(crate) async fn end_lost_attempts(transaction: &Transaction, delivery_ids: &[Uuid]) -> Result<(), Error> {
    transaction.execute(END_LOST, &[&delivery_ids, &LOST]).await?;
    Ok(())
}

/// Ends deliveries in `state` without an attempt.
pub(crate) async fn end(
    transaction: &Transaction,
    delivery_ids: &[Uuid],
    state: DeliveryState,
) -> Result<(), Error> {
    transaction.execute(END, &[&delivery_ids, &state.name()]).await?;
    Ok(())
}

/// Records the outcome of attempt `number`. Returns false, and changes nothing, if the lease has ended and the delivery was
/// leased again.
pub(crate) async fn record(
    transaction: &Transaction,
    delivery_id: Uuid,
    number: u32,
    outcome: &AttemptOutcome,
) -> Result<bool, Error> {
    let number = SqlCount(number);
    let (moved, error, message_id) = match outcome {
        AttemptOutcome::Delivered { provider_message_id } => {
            let moved = transaction.execute(DELIVERED, &[&delivery_id, &number]).await?;
            (moved, None, provider_message_id.as_deref())
        }
        AttemptOutcome::Retry { error, pause } => {
            let moved = transaction.execute(RETRY, &[&delivery_id, &number, &pause.as_secs_f64()]).await?;
            (moved, Some(error.as_str()), None)
        }
        AttemptOutcome::Dead { error } => {
            let moved = transaction.execute(DEAD, &[&delivery_id, &number]).await?;
            (moved, Some(error.as_str()), None)
        }
    };
    if moved > 0 {
        transaction.execute(END_ATTEMPT, &[&delivery_id, &number, &error, &message_id]).await?;
    }
    Ok(moved > 0)
}

/// Counts for the gauges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeliveryCounts {
    pub(crate) dead: u64,
    /// Deliveries that are QUEUED or SENDING.
    pub(crate) open: u64,
    /// Orders that have waited for more than 10 minutes.
    pub(crate) waiting_orders: u64,
}

pub(crate) async fn counts(postgres: &Postgres) -> Result<DeliveryCounts, Error> {
    let row = postgres.query_one("count deliveries", COUNTS, &[]).await?;
    Ok(DeliveryCounts {
        dead: row.read_count("dead")?,
        open: row.read_count("open")?,
        waiting_orders: row.read_count("waiting")?,
    })
}

fn due_delivery(row: &Row) -> Result<DueDelivery, Error> {
    Ok(DueDelivery {
        delivery_id: row.read("delivery_id")?,
        job_id: row.read_id("job_id")?,
        template: row.read_named("template")?,
        attempts: row.read_count("attempt_count")?,
        round_attempts: row.read_count("round_attempt_count")?,
        is_expired: row.read("is_expired")?,
        email: EmailAddress::from_store(row.read("email")?),
        // A newer version may store further languages: an English mail is better than none.
        language: Language::from_tag(row.read("locale")?, Language::En),
        content: row.read_json("content"),
    })
}
