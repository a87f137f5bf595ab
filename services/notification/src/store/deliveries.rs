//! Deliveries on their way: what is due, who sends it, how it ended. Times are the database's: workers' clocks differ.

use std::time::Duration;

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::JobId;
use uuid::Uuid;

use super::{Error, from_json, named};
use crate::domain::{
    content::{Content, Template},
    language::Language,
    text::EmailAddress,
};

// A delivery that is being sent is due again when its worker's lease is over. Templates that only a newer version knows
// are left to its workers: they are not ours to judge, and must not hold up the others.
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
// Guarded by the attempt: a worker whose lease is over has nothing to say any more.
const DELIVERED: &str = "UPDATE delivery SET state = 'DELIVERED', due_at = NULL, ended_at = now()
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const AGAIN: &str = "UPDATE delivery SET state = 'QUEUED',
        due_at = now() + make_interval(secs => $3) * (1 + random() / 10)
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const DEAD: &str = "UPDATE delivery SET state = 'DEAD', due_at = NULL, ended_at = now()
    WHERE delivery_id = $1 AND attempt_count = $2 AND state = 'SENDING'";
const END_ATTEMPT: &str = "UPDATE delivery_attempt SET ended_at = now(), error = $3, provider_message_id = $4
    WHERE delivery_id = $1 AND number = $2 AND ended_at IS NULL";
const COUNTS: &str = "SELECT (SELECT count(*) FROM delivery WHERE state = 'DEAD') AS dead,
    (SELECT count(*) FROM delivery WHERE state IN ('QUEUED', 'SENDING')) AS open,
    (SELECT count(*) FROM waiting_order WHERE created_at < now() - interval '10 minutes') AS waiting";

/// What stands at an attempt whose worker never said how it ended.
const LOST: &str = "the worker stopped before it could say how this ended; the mail may have gone out";

/// A delivery that is due.
#[derive(Debug)]
pub struct Due {
    /// Which.
    pub delivery_id: Uuid,
    /// Of which job.
    pub job_id: JobId,
    /// What is sent.
    pub template: Template,
    /// Attempts ever.
    pub attempts: u32,
    /// Attempts of this round.
    pub round_attempts: u32,
    /// Whether it came too late.
    pub is_expired: bool,
    /// To whom.
    pub email: EmailAddress,
    /// In which language.
    pub language: Language,
    /// What to say, as far as this version can read it.
    pub content: Result<Content, Error>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider took it.
    Delivered {
        /// The provider's name for it.
        provider_message_id: Option<String>,
    },
    /// It failed; again so much later.
    Again {
        /// Why.
        error: String,
        /// When.
        after: Duration,
    },
    /// It failed for good.
    Dead {
        /// Why.
        error: String,
    },
}

/// Up to `count` deliveries that are due, locked until the transaction ends.
pub async fn due(transaction: &Transaction, count: usize) -> Result<Vec<Due>, Error> {
    let limit = i64::try_from(count).unwrap_or(i64::MAX);
    let templates = Template::ALL.map(Template::name);
    transaction.query(DUE, &[&limit, &templates.as_slice()]).await?.iter().map(due_of_row).collect()
}

/// Marks deliveries as being sent, for `lease`, and writes down their attempts: before anything leaves the house.
pub async fn begin(
    transaction: &Transaction,
    ids: &[Uuid],
    lease: Duration,
    provider: &str,
) -> Result<(), Error> {
    transaction.execute(BEGIN, &[&ids, &lease.as_secs_f64(), &provider]).await?;
    Ok(())
}

/// Ends attempts that nobody ended: their workers died.
pub async fn end_lost_attempts(transaction: &Transaction, ids: &[Uuid]) -> Result<(), Error> {
    transaction.execute(END_LOST, &[&ids, &LOST]).await?;
    Ok(())
}

/// Ends deliveries without an attempt.
pub async fn end(
    transaction: &Transaction,
    ids: &[Uuid],
    state: crate::domain::delivery::State,
) -> Result<(), Error> {
    transaction.execute(END, &[&ids, &state.name()]).await?;
    Ok(())
}

/// Writes down how the attempt `number` ended. Answers whether it still counted.
pub async fn record(
    transaction: &Transaction,
    delivery_id: Uuid,
    number: u32,
    outcome: &Outcome,
) -> Result<bool, Error> {
    let number = i32::try_from(number).map_err(|_| Error::Unreadable { column: "attempt_count" })?;
    let (moved, error, message_id) = match outcome {
        Outcome::Delivered { provider_message_id } => {
            let moved = transaction.execute(DELIVERED, &[&delivery_id, &number]).await?;
            (moved, None, provider_message_id.as_deref())
        }
        Outcome::Again { error, after } => {
            let moved = transaction.execute(AGAIN, &[&delivery_id, &number, &after.as_secs_f64()]).await?;
            (moved, Some(error.as_str()), None)
        }
        Outcome::Dead { error } => {
            let moved = transaction.execute(DEAD, &[&delivery_id, &number]).await?;
            (moved, Some(error.as_str()), None)
        }
    };
    if moved > 0 {
        transaction.execute(END_ATTEMPT, &[&delivery_id, &number, &error, &message_id]).await?;
    }
    Ok(moved > 0)
}

/// How many deliveries are dead and open, and how many orders wait for long.
pub async fn counts(postgres: &Postgres) -> Result<(i64, i64, i64), Error> {
    let row = postgres.query_one("count deliveries", COUNTS, &[]).await?;
    Ok((column(&row, "dead")?, column(&row, "open")?, column(&row, "waiting")?))
}

fn due_of_row(row: &Row) -> Result<Due, Error> {
    let job_id: Uuid = column(row, "job_id")?;
    let count = |name| Ok::<_, Error>(column::<i32>(row, name)?.unsigned_abs());
    Ok(Due {
        delivery_id: column(row, "delivery_id")?,
        job_id: JobId::from_uuid(job_id),
        template: named(row, "template", Template::of_name)?,
        attempts: count("attempt_count")?,
        round_attempts: count("round_attempt_count")?,
        is_expired: column(row, "is_expired")?,
        email: EmailAddress::from_store(column(row, "email")?),
        language: named(row, "locale", |tag| Some(Language::of_tag(tag, Language::En)))?,
        content: from_json("content", column(row, "content")?),
    })
}
