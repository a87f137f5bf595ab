//! Jobs, each inserted together with its delivery. A job that is stored already stays unchanged.

use onsale_storage::postgres::{
    Error, Json, Transaction,
    row::{RowExt as _, SqlTime},
};
use onsale_types::{ClaimId, Named as _, Timestamp};
use serde::Deserialize;
use uuid::Uuid;

use crate::domain::{
    content::{Content, Template, Ticket},
    delivery::Channel,
    job::{Expiry, NewJob},
    order::SentConfirmation,
};

const INSERT: &str = "WITH given AS (
        SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::uuid[], $7::text[],
            $8::text[], $9::jsonb[], $10::timestamptz[], $11::float8[])
            AS given (job_id, delivery_id, template, subject_key, event_id, customer_id, email, locale, content,
                expire_at, lifetime_seconds)
    ), new AS (
        INSERT INTO job (job_id, template, subject_key, event_id, customer_id, email, locale, content, expire_at)
        SELECT job_id, template, subject_key, event_id, customer_id, email, locale, content,
            coalesce(expire_at, now() + make_interval(secs => lifetime_seconds))
        FROM given ON CONFLICT DO NOTHING RETURNING job_id
    ), queued AS (
        INSERT INTO delivery (delivery_id, job_id, channel)
        SELECT given.delivery_id, new.job_id, $12 FROM new JOIN given USING (job_id) RETURNING delivery_id
    )
    SELECT count(*) AS accepted, now() AS enqueued_at FROM queued";
const CONFIRMATION: &str = "SELECT customer_id, content FROM job WHERE template = $1 AND subject_key = $2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InsertedJobs {
    /// Number of jobs that were new.
    pub(crate) accepted_count: u32,
    /// Start of the transaction, by the database's clock.
    pub(crate) enqueue_time: Timestamp,
}

/// Inserts the jobs that are new, each with a delivery by email.
pub(crate) async fn insert(transaction: &Transaction, jobs: &[NewJob]) -> Result<InsertedJobs, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.job_id.as_uuid()).collect();
    let delivery_ids: Vec<Uuid> = jobs.iter().map(|_| Uuid::now_v7()).collect();
    let templates: Vec<&str> = jobs.iter().map(|job| job.content.template().name()).collect();
    let subject_keys: Vec<&str> = jobs.iter().map(|job| job.subject_key.as_str()).collect();
    let events: Vec<Uuid> = jobs.iter().map(|job| job.content.event().event_id.as_uuid()).collect();
    let customers: Vec<Option<Uuid>> =
        jobs.iter().map(|job| job.recipient.customer_id.map(|id| id.as_uuid())).collect();
    let emails: Vec<&str> = jobs.iter().map(|job| job.recipient.email.as_str()).collect();
    let locales: Vec<&str> = jobs.iter().map(|job| job.recipient.language.tag()).collect();
    let contents: Vec<Json<&Content>> = jobs.iter().map(|job| Json(&job.content)).collect();
    let expiries: Vec<Option<SqlTime>> = jobs.iter().map(|job| expire_time(job.expiry)).collect();
    let lifetimes: Vec<Option<f64>> = jobs.iter().map(|job| lifetime_seconds(job.expiry)).collect();
    let row = transaction
        .query_one(
            INSERT,
            &[
                &ids,
                &delivery_ids,
                &templates,
                &subject_keys,
                &events,
                &customers,
                &emails,
                &locales,
                &contents,
                &expiries,
                &lifetimes,
                &Channel::Email.name(),
            ],
        )
        .await?;
    let accepted_count = row.read_count("accepted")?;
    Ok(InsertedJobs { accepted_count, enqueue_time: row.read_time("enqueued_at")? })
}

fn expire_time(expiry: Expiry) -> Option<SqlTime> {
    match expiry {
        Expiry::At(time) => Some(SqlTime(time)),
        Expiry::Never | Expiry::After(_) => None,
    }
}

fn lifetime_seconds(expiry: Expiry) -> Option<f64> {
    match expiry {
        Expiry::After(span) => Some(span.as_secs_f64()),
        Expiry::Never | Expiry::At(_) => None,
    }
}

/// Part of the stored content of a confirmation. Any other content is refused.
#[derive(Deserialize)]
#[serde(tag = "template", rename_all = "SCREAMING_SNAKE_CASE")]
enum ConfirmationContent {
    OrderConfirmation { tickets: Vec<Ticket> },
}

/// Returns the order's confirmation mail, or `None` if no job for it exists.
pub(crate) async fn sent_confirmation(
    transaction: &Transaction,
    claim_id: ClaimId,
) -> Result<Option<SentConfirmation>, Error> {
    let template = Template::OrderConfirmation.name();
    let row = transaction.query_opt(CONFIRMATION, &[&template, &claim_id.to_string()]).await?;
    let Some(row) = row else { return Ok(None) };
    let ConfirmationContent::OrderConfirmation { tickets } = row.read_json("content")?;
    Ok(Some(SentConfirmation { customer_id: row.read_optional_id("customer_id")?, tickets }))
}
