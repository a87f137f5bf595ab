//! Deliveries as organizers see them, dead letters among them.

use onsale_storage::postgres::{
    Error, Postgres, Row, Transaction,
    row::{RowExt as _, SqlTime},
};
use onsale_types::{Named as _, PageSize};
use uuid::Uuid;

use crate::domain::{
    content::Template,
    dead_letter::{DeadLetterFilter, DeadLetterPosition},
    delivery::{Delivery, DeliveryAttempt, DeliveryState},
    text::EmailAddress,
};

/// Builds a statement that selects deliveries with their jobs.
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

/// Lists dead letters after the position, newest first. Returns one more than the page size if there is a next page.
pub(crate) async fn list(
    postgres: &Postgres,
    filter: &DeadLetterFilter,
    after: Option<DeadLetterPosition>,
    page_size: PageSize,
) -> Result<Vec<Delivery>, Error> {
    let channels: Vec<&str> = filter.channels.iter().map(|it| it.name()).collect();
    // Without a filter, all templates that this version knows: a newer version's dead letter must not fail the whole list.
    let templates = if filter.templates.is_empty() { Template::ALL } else { filter.templates.as_slice() };
    let templates: Vec<&str> = templates.iter().map(|it| it.name()).collect();
    let (time, id) = after.map(|after| (SqlTime(after.end_time), after.delivery_id)).unzip();
    let limit = i64::from(page_size.rows_and_one());
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

/// Returns a delivery with all its attempts.
pub(crate) async fn get(postgres: &Postgres, delivery_id: Uuid) -> Result<Option<Delivery>, Error> {
    let rows = postgres.query("get delivery", GET, &[&delivery_id]).await?;
    let mut found = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    add_attempts(&mut found, &postgres.query("list attempts", ATTEMPTS, &[&vec![delivery_id]]).await?)?;
    Ok(found.pop())
}

/// Like [`get`], but locks the delivery until the transaction ends.
pub(crate) async fn lock(transaction: &Transaction, delivery_id: Uuid) -> Result<Option<Delivery>, Error> {
    let rows = transaction.query(LOCK, &[&delivery_id]).await?;
    let mut found = rows.iter().map(delivery).collect::<Result<Vec<_>, _>>()?;
    add_attempts(&mut found, &transaction.query(ATTEMPTS, &[&vec![delivery_id]]).await?)?;
    Ok(found.pop())
}

/// Returns a DEAD delivery to QUEUED, due now and with a new round of attempts.
pub(crate) async fn requeue(transaction: &Transaction, dead: Delivery) -> Result<Delivery, Error> {
    let row = transaction.query_one(REQUEUE, &[&dead.delivery_id]).await?;
    let due_time = Some(row.read_time("due_at")?);
    Ok(Delivery { state: DeliveryState::Queued, due_time, end_time: None, ..dead })
}

/// Reads a delivery without its attempts.
fn delivery(row: &Row) -> Result<Delivery, Error> {
    Ok(Delivery {
        delivery_id: row.read("delivery_id")?,
        job_id: row.read_id("job_id")?,
        event_id: row.read_id("event_id")?,
        template: row.read_named("template")?,
        channel: row.read_named("channel")?,
        email: EmailAddress::from_store(row.read("email")?),
        state: row.read_named("state")?,
        due_time: row.read_optional_time("due_at")?,
        create_time: row.read_time("created_at")?,
        end_time: row.read_optional_time("ended_at")?,
        attempts: Vec::new(),
    })
}

fn add_attempts(deliveries: &mut [Delivery], rows: &[Row]) -> Result<(), Error> {
    for row in rows {
        let delivery_id: Uuid = row.read("delivery_id")?;
        let attempt = DeliveryAttempt {
            begin_time: row.read_time("began_at")?,
            provider: row.read("provider")?,
            provider_message_id: row.read("provider_message_id")?,
            error: row.read("error")?,
        };
        if let Some(delivery) = deliveries.iter_mut().find(|it| it.delivery_id == delivery_id) {
            delivery.attempts.push(attempt);
        }
    }
    Ok(())
}
