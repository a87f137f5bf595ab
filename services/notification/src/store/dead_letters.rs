//! Deliveries as organizers see them, and the dead letters among them.

use std::time::SystemTime;

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::{EventId, JobId, PageSize, Timestamp};
use uuid::Uuid;

use super::{Error, named, required_time, time};
use crate::domain::{
    content::Template,
    delivery::{Attempt, Channel, Delivery, State},
    text::EmailAddress,
};

/// What a delivery is read from.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT delivery_id, job_id, event_id, template, channel, email, state, due_at, delivery.created_at, ended_at
            FROM delivery JOIN job USING (job_id) ",
            $rest
        )
    };
}

const LIST: &str = select!(
    "WHERE state = 'DEAD' AND event_id = $1
        AND (cardinality($2::text[]) = 0 OR channel = ANY($2)) AND template = ANY($3)
        AND ($4::timestamptz IS NULL OR (ended_at, delivery_id) < ($4, $5::uuid))
    ORDER BY ended_at DESC, delivery_id DESC LIMIT $6"
);
const GET: &str = select!("WHERE delivery_id = $1");
const LOCK: &str = select!("WHERE delivery_id = $1 FOR UPDATE OF delivery");
const ATTEMPTS: &str =
    "SELECT delivery_id, began_at, provider, provider_message_id, error FROM delivery_attempt
    WHERE delivery_id = ANY($1) ORDER BY delivery_id, number";
const REQUEUE: &str =
    "UPDATE delivery SET state = 'QUEUED', due_at = now(), ended_at = NULL, round_attempt_count = 0
    WHERE delivery_id = $1 RETURNING due_at";

/// Which dead letters.
#[derive(Clone, Debug)]
pub struct Filter {
    /// About this event.
    pub event_id: EventId,
    /// By these channels; none: all.
    pub channels: Vec<Channel>,
    /// Of these templates; none: all.
    pub templates: Vec<Template>,
}

/// A place in the list: when the letter before it died, and which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// When.
    pub end_time: Timestamp,
    /// Which.
    pub delivery_id: Uuid,
}

/// Dead letters after `after`, newest first, one more than the page has: it tells whether there is a next page.
pub async fn list(
    postgres: &Postgres,
    filter: &Filter,
    after: Option<Position>,
    page: PageSize,
) -> Result<Vec<Delivery>, Error> {
    let channels: Vec<&str> = filter.channels.iter().map(|it| it.name()).collect();
    // All is all that we know: one letter of a newer version must not hide the others.
    let templates = if filter.templates.is_empty() { &Template::ALL } else { filter.templates.as_slice() };
    let templates: Vec<&str> = templates.iter().map(|it| it.name()).collect();
    let time: Option<SystemTime> = after.and_then(|it| it.end_time.to_system_time());
    let id = after.map(|it| it.delivery_id);
    let limit = i64::from(page.rows_and_one());
    let rows = postgres
        .query(
            "list dead letters",
            LIST,
            &[&filter.event_id.as_uuid(), &channels, &templates, &time, &id, &limit],
        )
        .await?;
    let mut deliveries = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<Uuid> = deliveries.iter().map(|it| it.delivery_id).collect();
    add_attempts(&mut deliveries, &postgres.query("list attempts", ATTEMPTS, &[&ids]).await?)?;
    Ok(deliveries)
}

/// One delivery with all its attempts.
pub async fn get(postgres: &Postgres, delivery_id: Uuid) -> Result<Option<Delivery>, Error> {
    let rows = postgres.query("get delivery", GET, &[&delivery_id]).await?;
    let mut found = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    add_attempts(&mut found, &postgres.query("list attempts", ATTEMPTS, &[&vec![delivery_id]]).await?)?;
    Ok(found.pop())
}

/// The same, locked until the transaction ends.
pub async fn lock(transaction: &Transaction, delivery_id: Uuid) -> Result<Option<Delivery>, Error> {
    let rows = transaction.query(LOCK, &[&delivery_id]).await?;
    let mut found = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    add_attempts(&mut found, &transaction.query(ATTEMPTS, &[&vec![delivery_id]]).await?)?;
    Ok(found.pop())
}

/// Takes a delivery out of the dead letters, with all attempts anew.
pub async fn requeue(transaction: &Transaction, dead: Delivery) -> Result<Delivery, Error> {
    let row = transaction.query_one(REQUEUE, &[&dead.delivery_id]).await?;
    let due_time = Some(required_time(&row, "due_at")?);
    Ok(Delivery { state: State::Queued, due_time, end_time: None, ..dead })
}

fn delivery(row: &Row) -> Result<Delivery, Error> {
    let (job_id, event_id): (Uuid, Uuid) = (column(row, "job_id")?, column(row, "event_id")?);
    Ok(Delivery {
        delivery_id: column(row, "delivery_id")?,
        job_id: JobId::from_uuid(job_id),
        event_id: EventId::from_uuid(event_id),
        template: named(row, "template", Template::of_name)?,
        channel: named(row, "channel", Channel::of_name)?,
        email: EmailAddress::from_store(column(row, "email")?),
        state: named(row, "state", State::of_name)?,
        due_time: time(row, "due_at")?,
        create_time: required_time(row, "created_at")?,
        end_time: time(row, "ended_at")?,
        attempts: Vec::new(),
    })
}

fn add_attempts(deliveries: &mut [Delivery], rows: &[Row]) -> Result<(), Error> {
    for row in rows {
        let id: Uuid = column(row, "delivery_id")?;
        let attempt = Attempt {
            time: required_time(row, "began_at")?,
            provider: column(row, "provider")?,
            provider_message_id: column(row, "provider_message_id")?,
            error: column(row, "error")?,
        };
        if let Some(delivery) = deliveries.iter_mut().find(|it| it.delivery_id == id) {
            delivery.attempts.push(attempt);
        }
    }
    Ok(())
}
