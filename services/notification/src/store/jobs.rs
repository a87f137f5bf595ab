//! Jobs. A job comes with its delivery, and one that is known already changes nothing.

use std::time::SystemTime;

use onsale_storage::postgres::{Transaction, column};
use onsale_types::{ClaimId, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use super::{Error, from_json, required_time, to_json};
use crate::domain::{
    content::{Content, Template},
    delivery::Channel,
    job::{Expiry, NewJob},
    order::Told,
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

/// What became of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// How many are new.
    pub accepted: u32,
    /// When.
    pub time: Timestamp,
}

/// Adds those of `jobs` that are new, each with its delivery by email.
pub async fn insert(transaction: &Transaction, jobs: &[NewJob]) -> Result<Inserted, Error> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.job_id.as_uuid()).collect();
    let delivery_ids: Vec<Uuid> = jobs.iter().map(|_| Uuid::now_v7()).collect();
    let templates: Vec<&str> = jobs.iter().map(|job| job.content.template().name()).collect();
    let subject_keys: Vec<&str> = jobs.iter().map(|job| job.subject_key.as_str()).collect();
    let events: Vec<Uuid> = jobs.iter().map(|job| job.content.event().event_id.as_uuid()).collect();
    let customers: Vec<Option<Uuid>> =
        jobs.iter().map(|job| job.recipient.customer_id.map(|id| id.as_uuid())).collect();
    let emails: Vec<&str> = jobs.iter().map(|job| job.recipient.email.as_str()).collect();
    let locales: Vec<&str> = jobs.iter().map(|job| job.recipient.language.tag()).collect();
    let contents: Vec<Value> =
        jobs.iter().map(|job| to_json("content", &job.content)).collect::<Result<_, _>>()?;
    let expiries: Vec<Option<SystemTime>> = jobs.iter().map(|job| expire_time(job.expiry)).collect();
    let lifetimes: Vec<Option<f64>> = jobs.iter().map(|job| lifetime(job.expiry)).collect();
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
    let accepted: i64 = column(&row, "accepted")?;
    let accepted = u32::try_from(accepted).map_err(|_| Error::Unreadable { column: "accepted" })?;
    Ok(Inserted { accepted, time: required_time(&row, "enqueued_at")? })
}

fn expire_time(expiry: Expiry) -> Option<SystemTime> {
    match expiry {
        Expiry::At(time) => time.to_system_time(),
        Expiry::Never | Expiry::After(_) => None,
    }
}

fn lifetime(expiry: Expiry) -> Option<f64> {
    match expiry {
        Expiry::After(span) => Some(span.as_secs_f64()),
        Expiry::Never | Expiry::At(_) => None,
    }
}

/// What the confirmation of an order said, if there is one.
pub async fn told(transaction: &Transaction, claim_id: ClaimId) -> Result<Option<Told>, Error> {
    let template = Template::OrderConfirmation.name();
    let row = transaction.query_opt(CONFIRMATION, &[&template, &claim_id.to_string()]).await?;
    let Some(row) = row else { return Ok(None) };
    let customer_id: Option<Uuid> = column(&row, "customer_id")?;
    let tickets = match from_json("content", column(&row, "content")?)? {
        Content::OrderConfirmation { tickets, .. } => tickets,
        Content::TicketDelivery { .. }
        | Content::QuotaInvitation { .. }
        | Content::QueueUpdate { .. }
        | Content::QueueYourTurn { .. }
        | Content::Reminder { .. }
        | Content::Refund { .. } => return Err(Error::Unreadable { column: "content" }),
    };
    Ok(Some(Told { customer_id: customer_id.map(onsale_types::CustomerId::from_uuid), tickets }))
}
