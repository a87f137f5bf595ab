//! The line of an event under its lock: every change of a queue begins with [`lock`]. Also the statements of a join, which find
//! the customers of a batch and append their entries.

use std::collections::HashSet;

use onsale_storage::postgres::{
    Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime, uuids},
};
use onsale_types::{CustomerId, EventId, Timestamp};
use uuid::Uuid;

use super::{entries::read_entry, queues};
use crate::{
    domain::{
        join::{JoinFacts, JoinRequest, NewEntry, StoredJoin},
        line::Line,
        policy::{Policy, QueueMode},
        queue::QueueAndLine,
        refusal::Refusal,
    },
    error::Error,
};

// Two statements, one after the other: after the wait for the lock, the second one sees everything that was committed
// meanwhile. One statement would join the new row of `line` with an old row of `queue`.
const LOCK_LINE: &str = concat!("SELECT ", line_columns!(), " FROM line WHERE event_id = $1 FOR UPDATE");
const READ_QUEUE: &str =
    concat!("SELECT ", queue_columns!(), ", clock_timestamp() AS now FROM queue WHERE event_id = $1");
const SAVE: &str = "UPDATE line SET revision = $2, last_seq = $3, last_admitted_seq = $4,
        last_fencing_number = $5, waiting_count = $6, open_turn_count = $7, bucket_level = $8, bucket_time = $9,
        service_micros = $10, shown_service_micros = $11, completed_count = $12, expired_count = $13, left_count = $14,
        slide_time = $15
    WHERE event_id = $1";
// One scan of the index of requests, which begins with the customer, answers two questions: which entries the customers have
// open here, and which entries the requests made. `IS TRUE` hides the other conditions from the planner: a table that a rush
// has just filled has no statistics, and the planner would choose an index by event and read the whole event per customer.
const FIND_JOINS: &str = concat!(
    "SELECT ",
    entry_columns!(),
    ", request_id, fingerprint FROM entry WHERE customer_id = ANY($2)
        AND (request_id = ANY($3) OR (event_id = $1 AND state IN ('WAITING', 'ADMITTED'))) IS TRUE"
);
const FIND_BLOCKED: &str =
    "SELECT customer_id FROM blocked_customer WHERE event_id = $1 AND customer_id = ANY($2)";
const APPEND: &str = "INSERT INTO entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name,
        avatar_url, request_id, fingerprint, start_position)
    SELECT entry_id, $1, customer_id, $2 + place, 'WAITING', $3, $4, display_name, avatar_url, request_id, fingerprint,
        $11 + place
    FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::uuid[], $10::uuid[])
        WITH ORDINALITY AS new (entry_id, customer_id, display_name, avatar_url, request_id, fingerprint, place)";

/// Locks the line against every other change until the transaction ends, and reads the queue. An event whose creation has not
/// been reported is not found.
pub(crate) async fn lock(
    transaction: &Transaction,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let current = lock_any(transaction, event_id, defaults).await?;
    if current.queue.organizer_id.is_none() {
        return Err(Refusal::EventNotFound { event_id }.into());
    }
    Ok(current)
}

/// Like [`lock`], but also accepts an event whose `event.created` has not arrived yet.
pub(crate) async fn lock_any(
    transaction: &Transaction,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let id = event_id.as_uuid();
    // Not pipelined: a statement that is not prepared yet on this connection would run after the other one.
    let line = transaction.query_opt(LOCK_LINE, &[&id]).await?;
    let line = line.ok_or(Refusal::EventNotFound { event_id })?;
    let queue = transaction.query_opt(READ_QUEUE, &[&id]).await?;
    let queue = queue.ok_or(Refusal::EventNotFound { event_id })?;
    let now = queue.read_time("now")?;
    let line = queues::read_line(&line)?;
    Ok(QueueAndLine { queue: queues::read_queue(&queue, defaults)?.settled_at(now), line, now })
}

/// Saves the counters of a locked line.
pub(crate) async fn save(transaction: &Transaction, event_id: EventId, line: &Line) -> Result<(), Error> {
    transaction
        .execute(
            SAVE,
            &[
                &event_id.as_uuid(),
                &SqlCount(line.revision),
                &SqlCount(line.last_seq),
                &SqlCount(line.last_admitted_seq),
                &SqlCount(line.last_fencing_number),
                &SqlCount(line.waiting_count),
                &SqlCount(line.open_turn_count),
                &SqlCount(line.bucket.level),
                &SqlTime(line.bucket.time),
                &line.service_time.map(queues::micros).transpose()?,
                &line.shown_service_time.map(queues::micros).transpose()?,
                &SqlCount(line.completed_count),
                &SqlCount(line.expired_count),
                &SqlCount(line.left_count),
                &line.slide_time.map(SqlTime),
            ],
        )
        .await?;
    Ok(())
}

/// Finds what is stored about the customers of a batch of joins: their open entries, the entries that their requests made
/// before, and who of them is blocked. A WINDOWED queue stores no entries.
pub(crate) async fn find_joins(
    transaction: &Transaction,
    event_id: EventId,
    mode: QueueMode,
    requests: &[&JoinRequest],
) -> Result<JoinFacts, Error> {
    let customers = uuids(requests.iter().map(|request| &request.customer_id));
    match mode {
        QueueMode::Tracked => {
            let (stored, blocked) = futures_util::future::try_join(
                find_stored(transaction, event_id, &customers, requests),
                find_blocked(transaction, event_id, &customers),
            )
            .await?;
            Ok(JoinFacts { stored, blocked })
        }
        QueueMode::Windowed => {
            let blocked = find_blocked(transaction, event_id, &customers).await?;
            Ok(JoinFacts { stored: Vec::new(), blocked })
        }
    }
}

async fn find_stored(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[Uuid],
    requests: &[&JoinRequest],
) -> Result<Vec<StoredJoin>, Error> {
    let requests: Vec<Uuid> = requests.iter().map(|request| request.request_id.as_uuid()).collect();
    let rows = transaction.query(FIND_JOINS, &[&event_id.as_uuid(), &customers, &requests]).await?;
    let stored = |row: &Row| {
        let request_id = row.read_id("request_id")?;
        Ok(StoredJoin { entry: read_entry(row)?, request_id, fingerprint: row.read("fingerprint")? })
    };
    rows.iter().map(stored).collect()
}

async fn find_blocked(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[Uuid],
) -> Result<HashSet<CustomerId>, Error> {
    let rows = transaction.query(FIND_BLOCKED, &[&event_id.as_uuid(), &customers]).await?;
    rows.iter().map(|row| Ok(row.read_id("customer_id")?)).collect()
}

/// Appends entries to the line as it was `before`, in their order, and saves the counters `after` them.
pub(crate) async fn append(
    transaction: &Transaction,
    event_id: EventId,
    before: &Line,
    after: &Line,
    entries: &[NewEntry],
    now: Timestamp,
) -> Result<(), Error> {
    if entries.is_empty() {
        return save(transaction, event_id, after).await;
    }
    let names: Vec<&str> = entries.iter().map(|entry| entry.display_name.as_str()).collect();
    let avatars: Vec<&str> = entries.iter().map(|entry| entry.avatar_url.as_str()).collect();
    let requests: Vec<Uuid> = entries.iter().map(|entry| entry.request_id.as_uuid()).collect();
    let fingerprints: Vec<Uuid> = entries.iter().map(|entry| entry.fingerprint).collect();
    let insert = async {
        transaction
            .execute(
                APPEND,
                &[
                    &event_id.as_uuid(),
                    &SqlCount(before.last_seq),
                    &SqlCount(after.revision),
                    &SqlTime(now),
                    &uuids(entries.iter().map(|entry| &entry.entry_id)),
                    &uuids(entries.iter().map(|entry| &entry.customer_id)),
                    &names,
                    &avatars,
                    &requests,
                    &fingerprints,
                    &SqlCount(before.waiting_count),
                ],
            )
            .await?;
        Ok(())
    };
    futures_util::future::try_join(insert, save(transaction, event_id, after)).await?;
    Ok(())
}
