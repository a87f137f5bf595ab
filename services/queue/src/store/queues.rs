//! Queues and their lines in Postgres. `lock` is how every change begins.

use std::time::Duration;

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::{EventId, OrganizerId, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{count, named, optional_named, optional_time, sql_count, sql_time, time, uuid};
use crate::{
    domain::{
        bucket::Bucket,
        line::Line,
        milestone::Milestones,
        policy::{Policy, PolicyOverrides, QueueMode},
        queue::{Close, CloseReason, Queue, QueueState},
        refusal::Refusal,
    },
    error::Error,
};

// Named one by one: with `*`, a migration that adds a column would break the statements that running pods have prepared.
macro_rules! queue_columns {
    () => {
        "event_id, organizer_id, created_revision, summary, sectors, life_revision, is_active, stock_revision, is_sold_out,
        state, open_time, pause_time, joins_paused, close_reason, close_time, remaining_sectors, notice,
        admissions_per_minute, open_turns_max, turn_seconds, idle_seconds, waiting_max, update_time, mode, milestones,
        window_size, active_windows, slide_seconds"
    };
}
macro_rules! line_columns {
    () => {
        "revision, last_seq, last_admitted_seq, last_fencing_number, waiting_count, open_turn_count, bucket_level,
        bucket_time, service_micros, shown_service_micros, completed_count, expired_count, left_count, slide_time"
    };
}

const ADD_QUEUE: &str = "INSERT INTO queue (event_id) VALUES ($1) ON CONFLICT DO NOTHING";
const ADD_LINE: &str = "INSERT INTO line (event_id) VALUES ($1) ON CONFLICT DO NOTHING";
// Two statements, one after the other: having waited for the lock, the second sees what was committed meanwhile. One
// statement would join the new row of `line` with an old one of `queue`.
const LOCK_LINE: &str = concat!("SELECT ", line_columns!(), " FROM line WHERE event_id = $1 FOR UPDATE");
const READ_QUEUE: &str =
    concat!("SELECT ", queue_columns!(), ", clock_timestamp() AS now FROM queue WHERE event_id = $1");
const READ: &str = concat!(
    "SELECT ",
    queue_columns!(),
    ", ",
    line_columns!(),
    ", clock_timestamp() AS now FROM queue JOIN line USING (event_id) WHERE event_id = $1"
);
const SAVE_LINE: &str = "UPDATE line SET revision = $2, last_seq = $3, last_admitted_seq = $4,
        last_fencing_number = $5, waiting_count = $6, open_turn_count = $7, bucket_level = $8, bucket_time = $9,
        service_micros = $10, shown_service_micros = $11, completed_count = $12, expired_count = $13, left_count = $14,
        slide_time = $15
    WHERE event_id = $1";
const SAVE_QUEUE: &str = "UPDATE queue SET organizer_id = $2, created_revision = $3, summary = $4, sectors = $5,
        life_revision = $6, is_active = $7, stock_revision = $8, is_sold_out = $9, state = $10, open_time = $11,
        pause_time = $12, joins_paused = $13, close_reason = $14, close_time = $15, remaining_sectors = $16, notice = $17,
        admissions_per_minute = $18, open_turns_max = $19, turn_seconds = $20, idle_seconds = $21, waiting_max = $22,
        update_time = $23, mode = $24, milestones = $25, window_size = $26, active_windows = $27, slide_seconds = $28
    WHERE event_id = $1";
const ADMITTING: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE state = 'OPEN' AND mode = 'TRACKED' AND waiting_count > 0
        AND coalesce(admissions_per_minute, $1) > 0 AND open_turn_count < coalesce(open_turns_max, $2)";
const DUE: &str = "SELECT event_id FROM queue
    WHERE state = 'SCHEDULED' AND is_active AND organizer_id IS NOT NULL AND open_time <= now()";
const WAITING: &str =
    "SELECT event_id FROM queue JOIN line USING (event_id) WHERE mode = 'TRACKED' AND waiting_count > 0";
const OVER: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE mode = 'TRACKED' AND state = 'CLOSED' AND close_reason IN ('ENDED', 'CANCELED') AND waiting_count > 0";
const ADMITTED_LATELY: &str = "SELECT count(*) AS admitted FROM entry
    WHERE event_id = $1 AND grant_time > now() - interval '1 minute'";

/// A queue, its line, and the database's time when they were read.
#[derive(Clone, Debug)]
pub(crate) struct QueueAndLine {
    /// How it is set, as of `now`.
    pub(crate) queue: Queue,
    /// Its counters.
    pub(crate) line: Line,
    /// The database's time.
    pub(crate) now: Timestamp,
}

/// Makes sure that there is a row to keep facts about the event in.
pub(crate) async fn ensure(transaction: &Transaction, event_id: EventId) -> Result<(), Error> {
    transaction.execute(ADD_QUEUE, &[&event_id.as_uuid()]).await?;
    transaction.execute(ADD_LINE, &[&event_id.as_uuid()]).await?;
    Ok(())
}

/// The queue, locked against every other change until the transaction ends. Refused when the event is not known.
pub(crate) async fn lock(
    transaction: &Transaction,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let current = lock_any(transaction, event_id, defaults).await?;
    Ok(QueueAndLine { queue: current.queue.known()?, ..current })
}

/// The same, also of an event that is known from hearsay only.
pub(crate) async fn lock_any(
    transaction: &Transaction,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let id = event_id.as_uuid();
    // Not sent together: until both are prepared on a connection, nothing says which of them goes first.
    let line = transaction.query_opt(LOCK_LINE, &[&id]).await?;
    let line = line.ok_or(Refusal::EventNotFound { event_id })?;
    let queue = transaction.query_opt(READ_QUEUE, &[&id]).await?;
    let queue = queue.ok_or(Refusal::EventNotFound { event_id })?;
    let now = time(&queue, "now")?;
    Ok(QueueAndLine { queue: read_queue(&queue, defaults)?.at(now), line: read_line(&line)?, now })
}

/// The queue as it is now. Refused when the event is not known.
pub(crate) async fn read(
    postgres: &Postgres,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let row = postgres.query_opt("read queue", READ, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Err(Refusal::EventNotFound { event_id }.into()) };
    let now = time(&row, "now")?;
    Ok(QueueAndLine { queue: read_queue(&row, defaults)?.at(now).known()?, line: read_line(&row)?, now })
}

/// Writes the counters of a locked line.
pub(crate) async fn save_line(
    transaction: &Transaction,
    event_id: EventId,
    line: &Line,
) -> Result<(), Error> {
    let micros =
        |span: Option<Duration>| span.map(|span| i64::try_from(span.as_micros()).unwrap_or(i64::MAX));
    transaction
        .execute(
            SAVE_LINE,
            &[
                &event_id.as_uuid(),
                &sql_count(line.revision),
                &sql_count(line.last_seq),
                &sql_count(line.last_admitted_seq),
                &sql_count(line.last_fencing_number),
                &sql_count(line.waiting_count),
                &sql_count(line.open_turn_count),
                &sql_count(line.bucket.level),
                &sql_time(line.bucket.time),
                &micros(line.service_time),
                &micros(line.shown_service_time),
                &sql_count(line.completed_count),
                &sql_count(line.expired_count),
                &sql_count(line.left_count),
                &line.slide_time.map(sql_time),
            ],
        )
        .await?;
    Ok(())
}

/// Writes the settings of a locked queue.
pub(crate) async fn save_queue(transaction: &Transaction, queue: &Queue) -> Result<(), Error> {
    let close = queue.close.as_ref();
    let overrides = &queue.overrides;
    let seconds = |span: Option<Duration>| span.map(|span| sql_count(span.as_secs()));
    let remaining = close.map_or(&[][..], |close| &close.remaining);
    transaction
        .execute(
            SAVE_QUEUE,
            &[
                &queue.event_id.as_uuid(),
                &queue.organizer_id.map(|id| id.as_uuid()),
                &sql_count(queue.created_revision),
                &json(&queue.summary)?,
                &json(&queue.sectors)?,
                &sql_count(queue.life_revision),
                &queue.is_active,
                &sql_count(queue.stock_revision),
                &queue.is_sold_out,
                &queue.state.name(),
                &queue.open_time.map(sql_time),
                &queue.pause_time.map(sql_time),
                &queue.joins_paused,
                &close.map(|close| close.reason.name()),
                &close.map(|close| sql_time(close.time)),
                &json(remaining)?,
                &queue.notice,
                &overrides.admissions_per_minute.map(i64::from),
                &overrides.open_turns_max.map(i64::from),
                &seconds(overrides.turn_duration),
                &seconds(overrides.idle_timeout),
                &overrides.waiting_max.map(sql_count),
                &sql_time(queue.update_time),
                &overrides.mode.name(),
                &overrides.milestones.map(|list| list.falling().map(sql_count).collect::<Vec<i64>>()),
                &overrides.window_size.map(i64::from),
                &overrides.active_windows.map(i64::from),
                &seconds(overrides.slide_interval),
            ],
        )
        .await?;
    Ok(())
}

/// Events in which somebody may be admitted.
pub(crate) async fn admitting(postgres: &Postgres, defaults: &Policy) -> Result<Vec<EventId>, Error> {
    let (rate, turns) = (i64::from(defaults.admissions_per_minute), i64::from(defaults.open_turns_max));
    events(postgres.query("find admitting", ADMITTING, &[&rate, &turns]).await?)
}

/// Events whose opening time has come.
pub(crate) async fn due(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    events(postgres.query("find due", DUE, &[]).await?)
}

/// Events in which somebody waits whose entry is stored.
pub(crate) async fn waiting(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    events(postgres.query("find waiting", WAITING, &[]).await?)
}

/// Events that are over while somebody still waits.
pub(crate) async fn over(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    events(postgres.query("find over", OVER, &[]).await?)
}

/// Turns granted within the last minute.
pub(crate) async fn admitted_lately(postgres: &Postgres, event_id: EventId) -> Result<u64, Error> {
    let row = postgres.query_one("count admitted", ADMITTED_LATELY, &[&event_id.as_uuid()]).await?;
    count(&row, "admitted")
}

pub(crate) fn events(rows: Vec<Row>) -> Result<Vec<EventId>, Error> {
    rows.iter().map(|row| Ok(EventId::from_uuid(uuid(row, "event_id")?))).collect()
}

fn read_line(row: &Row) -> Result<Line, Error> {
    let span = |name: &'static str| -> Result<Option<Duration>, Error> {
        Ok(column::<Option<i64>>(row, name)?.map(|micros| Duration::from_micros(micros.unsigned_abs())))
    };
    Ok(Line {
        revision: count(row, "revision")?,
        last_seq: count(row, "last_seq")?,
        last_admitted_seq: count(row, "last_admitted_seq")?,
        last_fencing_number: count(row, "last_fencing_number")?,
        waiting_count: count(row, "waiting_count")?,
        open_turn_count: count(row, "open_turn_count")?,
        bucket: Bucket { level: count(row, "bucket_level")?, time: time(row, "bucket_time")? },
        service_time: span("service_micros")?,
        shown_service_time: span("shown_service_micros")?,
        completed_count: count(row, "completed_count")?,
        expired_count: count(row, "expired_count")?,
        left_count: count(row, "left_count")?,
        slide_time: optional_time(row, "slide_time")?,
    })
}

fn read_queue(row: &Row, defaults: &Policy) -> Result<Queue, Error> {
    let overrides = read_overrides(row)?;
    Ok(Queue {
        event_id: EventId::from_uuid(uuid(row, "event_id")?),
        organizer_id: column::<Option<Uuid>>(row, "organizer_id")?.map(OrganizerId::from_uuid),
        created_revision: count(row, "created_revision")?,
        summary: from_json(row, "summary")?,
        sectors: from_json(row, "sectors")?,
        life_revision: count(row, "life_revision")?,
        is_active: column(row, "is_active")?,
        stock_revision: count(row, "stock_revision")?,
        is_sold_out: column(row, "is_sold_out")?,
        state: named(row, "state", QueueState::from_name)?,
        open_time: optional_time(row, "open_time")?,
        pause_time: optional_time(row, "pause_time")?,
        joins_paused: column(row, "joins_paused")?,
        close: read_close(row)?,
        notice: column(row, "notice")?,
        overrides,
        policy: overrides.over(defaults),
        update_time: time(row, "update_time")?,
    })
}

fn read_close(row: &Row) -> Result<Option<Close>, Error> {
    let Some(reason) = optional_named(row, "close_reason", CloseReason::from_name)? else { return Ok(None) };
    let remaining = from_json(row, "remaining_sectors")?;
    Ok(Some(Close { reason, time: time(row, "close_time")?, remaining }))
}

fn read_overrides(row: &Row) -> Result<PolicyOverrides, Error> {
    let number = |name: &'static str| -> Result<Option<u64>, Error> {
        Ok(column::<Option<i64>>(row, name)?.map(i64::unsigned_abs))
    };
    // Within 32 bits by the table's checks.
    let small = |name| Ok::<_, Error>(number(name)?.map(|value| u32::try_from(value).unwrap_or(u32::MAX)));
    Ok(PolicyOverrides {
        mode: named(row, "mode", QueueMode::from_name)?,
        admissions_per_minute: small("admissions_per_minute")?,
        open_turns_max: small("open_turns_max")?,
        turn_duration: number("turn_seconds")?.map(Duration::from_secs),
        idle_timeout: number("idle_seconds")?.map(Duration::from_secs),
        waiting_max: number("waiting_max")?,
        milestones: read_milestones(row)?,
        window_size: small("window_size")?,
        active_windows: small("active_windows")?,
        slide_interval: number("slide_seconds")?.map(Duration::from_secs),
    })
}

fn read_milestones(row: &Row) -> Result<Option<Milestones>, Error> {
    let Some(list) = column::<Option<Vec<i64>>>(row, "milestones")? else { return Ok(None) };
    let list: Vec<u64> = list.into_iter().map(i64::unsigned_abs).collect();
    Milestones::try_from(list).map(Some).map_err(|_error| Error::Stored { what: "milestones" })
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|_error| Error::Stored { what: "json" })
}

fn from_json<T: DeserializeOwned>(row: &Row, name: &'static str) -> Result<T, Error> {
    let value: serde_json::Value = column(row, name)?;
    serde_json::from_value(value).map_err(|_error| Error::Stored { what: name })
}
