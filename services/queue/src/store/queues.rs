//! Queues with their lines in Postgres: reads without the lock, the writes of a queue's settings, and searches for queues with
//! work to do.

use std::time::Duration;

use onsale_storage::postgres::{
    Postgres, Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime},
};
use onsale_types::{EventId, Named as _};
use serde::Serialize;

use crate::{
    domain::{
        bucket::Bucket,
        line::Line,
        milestone::Milestones,
        policy::{Policy, PolicyOverrides},
        queue::{Close, Queue, QueueAndLine},
        refusal::Refusal,
    },
    error::Error,
};

const ADD_QUEUE: &str = "INSERT INTO queue (event_id) VALUES ($1) ON CONFLICT DO NOTHING";
const ADD_LINE: &str = "INSERT INTO line (event_id) VALUES ($1) ON CONFLICT DO NOTHING";
const READ: &str = concat!(
    "SELECT ",
    queue_columns!(),
    ", ",
    line_columns!(),
    ", clock_timestamp() AS now FROM queue JOIN line USING (event_id) WHERE event_id = $1"
);
const SAVE: &str = "UPDATE queue SET organizer_id = $2, created_revision = $3, summary = $4, sectors = $5,
        life_revision = $6, is_active = $7, stock_revision = $8, is_sold_out = $9, state = $10, open_time = $11,
        pause_time = $12, joins_paused = $13, close_reason = $14, close_time = $15, remaining_sectors = $16, notice = $17,
        admissions_per_minute = $18, open_turns_max = $19, turn_seconds = $20, idle_seconds = $21, waiting_max = $22,
        update_time = $23, mode = $24, milestones = $25, window_size = $26, active_windows = $27, slide_seconds = $28
    WHERE event_id = $1";
const ADMITTING: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE state = 'OPEN' AND mode = 'TRACKED' AND waiting_count > 0
        AND coalesce(admissions_per_minute, $1) > 0 AND open_turn_count < coalesce(open_turns_max, $2)";
const DUE_TO_OPEN: &str = "SELECT event_id FROM queue
    WHERE state = 'SCHEDULED' AND is_active AND organizer_id IS NOT NULL AND open_time <= now()";
const WAITING: &str =
    "SELECT event_id FROM queue JOIN line USING (event_id) WHERE mode = 'TRACKED' AND waiting_count > 0";
const CLOSED_FOR_GOOD: &str = "SELECT event_id FROM queue JOIN line USING (event_id)
    WHERE mode = 'TRACKED' AND state = 'CLOSED' AND close_reason IN ('ENDED', 'CANCELED') AND waiting_count > 0";
const ADMITTED_LAST_MINUTE: &str = "SELECT count(*) AS admitted FROM entry
    WHERE event_id = $1 AND grant_time > now() - interval '1 minute'";

/// Creates the rows of a queue and its line if they do not exist yet.
pub(crate) async fn ensure(transaction: &Transaction, event_id: EventId) -> Result<(), Error> {
    transaction.execute(ADD_QUEUE, &[&event_id.as_uuid()]).await?;
    transaction.execute(ADD_LINE, &[&event_id.as_uuid()]).await?;
    Ok(())
}

/// Reads a queue and its line in one snapshot. An event whose creation has not been reported is not found.
pub(crate) async fn read(
    postgres: &Postgres,
    event_id: EventId,
    defaults: &Policy,
) -> Result<QueueAndLine, Error> {
    let row = postgres.query_opt("read queue", READ, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Err(Refusal::EventNotFound { event_id }.into()) };
    let now = row.read_time("now")?;
    let queue = read_queue(&row, defaults)?.settled_at(now);
    if queue.organizer_id.is_none() {
        return Err(Refusal::EventNotFound { event_id }.into());
    }
    Ok(QueueAndLine { queue, line: read_line(&row)?, now })
}

/// Saves the settings of a locked queue.
pub(crate) async fn save(transaction: &Transaction, queue: &Queue) -> Result<(), Error> {
    let close = queue.close.as_ref();
    let overrides = &queue.overrides;
    let seconds = |span: Option<Duration>| span.map(|span| SqlCount(span.as_secs()));
    let remaining = close.map_or(&[][..], |close| &close.remaining);
    let milestones: Option<Vec<SqlCount<u64>>> =
        overrides.milestones.map(|list| list.falling().map(SqlCount).collect());
    transaction
        .execute(
            SAVE,
            &[
                &queue.event_id.as_uuid(),
                &queue.organizer_id.map(|id| id.as_uuid()),
                &SqlCount(queue.created_revision),
                &json(&queue.summary)?,
                &json(&queue.sectors)?,
                &SqlCount(queue.life_revision),
                &queue.is_active,
                &SqlCount(queue.stock_revision),
                &queue.is_sold_out,
                &queue.state.name(),
                &queue.open_time.map(SqlTime),
                &queue.pause_time.map(SqlTime),
                &queue.joins_paused,
                &close.map(|close| close.reason.name()),
                &close.map(|close| SqlTime(close.time)),
                &json(remaining)?,
                &queue.notice,
                &overrides.admissions_per_minute.map(SqlCount),
                &overrides.open_turns_max.map(SqlCount),
                &seconds(overrides.turn_duration),
                &seconds(overrides.idle_timeout),
                &overrides.waiting_max.map(SqlCount),
                &SqlTime(queue.update_time),
                &overrides.mode.name(),
                &milestones,
                &overrides.window_size.map(SqlCount),
                &overrides.active_windows.map(SqlCount),
                &seconds(overrides.slide_interval),
            ],
        )
        .await?;
    Ok(())
}

/// Returns the events with waiting customers, a rate above 0 and a free slot for a turn.
pub(crate) async fn admitting(postgres: &Postgres, defaults: &Policy) -> Result<Vec<EventId>, Error> {
    let (rate, turns) = (SqlCount(defaults.admissions_per_minute), SqlCount(defaults.open_turns_max));
    read_events(postgres.query("find admitting", ADMITTING, &[&rate, &turns]).await?)
}

/// Returns the events whose opening time has passed and is not stored as an opening yet.
pub(crate) async fn due_to_open(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    read_events(postgres.query("find due", DUE_TO_OPEN, &[]).await?)
}

/// Returns the events of TRACKED queues with waiting entries.
pub(crate) async fn waiting(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    read_events(postgres.query("find waiting", WAITING, &[]).await?)
}

/// Returns the events whose queue closed for good and still has waiting entries.
pub(crate) async fn closed_for_good(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    read_events(postgres.query("find over", CLOSED_FOR_GOOD, &[]).await?)
}

/// Counts the turns granted within the last minute.
pub(crate) async fn admitted_last_minute(postgres: &Postgres, event_id: EventId) -> Result<u64, Error> {
    let row = postgres.query_one("count admitted", ADMITTED_LAST_MINUTE, &[&event_id.as_uuid()]).await?;
    Ok(row.read_count("admitted")?)
}

pub(crate) fn read_events(rows: Vec<Row>) -> Result<Vec<EventId>, Error> {
    rows.iter().map(|row| Ok(row.read_id("event_id")?)).collect()
}

/// Returns a span in microseconds; one that no column can store is an error.
pub(crate) fn micros(span: Duration) -> Result<i64, Error> {
    i64::try_from(span.as_micros()).map_err(|_too_long| Error::Unstorable { what: "a span of microseconds" })
}

fn read_micros(row: &Row, name: &'static str) -> Result<Option<Duration>, Error> {
    Ok(row.read_optional_count(name)?.map(Duration::from_micros))
}

fn read_seconds(row: &Row, name: &'static str) -> Result<Option<Duration>, Error> {
    Ok(row.read_optional_count(name)?.map(Duration::from_secs))
}

pub(crate) fn read_line(row: &Row) -> Result<Line, Error> {
    Ok(Line {
        revision: row.read_count("revision")?,
        last_seq: row.read_count("last_seq")?,
        last_admitted_seq: row.read_count("last_admitted_seq")?,
        last_fencing_number: row.read_count("last_fencing_number")?,
        waiting_count: row.read_count("waiting_count")?,
        open_turn_count: row.read_count("open_turn_count")?,
        bucket: Bucket { level: row.read_count("bucket_level")?, time: row.read_time("bucket_time")? },
        service_time: read_micros(row, "service_micros")?,
        shown_service_time: read_micros(row, "shown_service_micros")?,
        completed_count: row.read_count("completed_count")?,
        expired_count: row.read_count("expired_count")?,
        left_count: row.read_count("left_count")?,
        slide_time: row.read_optional_time("slide_time")?,
    })
}

pub(crate) fn read_queue(row: &Row, defaults: &Policy) -> Result<Queue, Error> {
    let overrides = read_overrides(row)?;
    Ok(Queue {
        event_id: row.read_id("event_id")?,
        organizer_id: row.read_optional_id("organizer_id")?,
        created_revision: row.read_count("created_revision")?,
        summary: row.read_json("summary")?,
        sectors: row.read_json("sectors")?,
        life_revision: row.read_count("life_revision")?,
        is_active: row.read("is_active")?,
        stock_revision: row.read_count("stock_revision")?,
        is_sold_out: row.read("is_sold_out")?,
        state: row.read_named("state")?,
        open_time: row.read_optional_time("open_time")?,
        pause_time: row.read_optional_time("pause_time")?,
        joins_paused: row.read("joins_paused")?,
        close: read_close(row)?,
        notice: row.read("notice")?,
        overrides,
        policy: overrides.over(defaults),
        update_time: row.read_time("update_time")?,
    })
}

fn read_close(row: &Row) -> Result<Option<Close>, Error> {
    let Some(reason) = row.read_optional_named("close_reason")? else { return Ok(None) };
    let remaining = row.read_json("remaining_sectors")?;
    Ok(Some(Close { reason, time: row.read_time("close_time")?, remaining }))
}

fn read_overrides(row: &Row) -> Result<PolicyOverrides, Error> {
    Ok(PolicyOverrides {
        mode: row.read_named("mode")?,
        admissions_per_minute: row.read_optional_count("admissions_per_minute")?,
        open_turns_max: row.read_optional_count("open_turns_max")?,
        turn_duration: read_seconds(row, "turn_seconds")?,
        idle_timeout: read_seconds(row, "idle_seconds")?,
        waiting_max: row.read_optional_count("waiting_max")?,
        milestones: read_milestones(row)?,
        window_size: row.read_optional_count("window_size")?,
        active_windows: row.read_optional_count("active_windows")?,
        slide_interval: read_seconds(row, "slide_seconds")?,
    })
}

fn read_milestones(row: &Row) -> Result<Option<Milestones>, Error> {
    let Some(list) = row.read::<Option<Vec<SqlCount<u64>>>>("milestones")? else { return Ok(None) };
    let list: Vec<u64> = list.into_iter().map(|SqlCount(milestone)| milestone).collect();
    Milestones::try_from(list).map(Some).map_err(|_invalid| Error::Unreadable { what: "milestones" })
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<serde_json::Value, Error> {
    serde_json::to_value(value).map_err(|_error| Error::Unstorable { what: "a JSON value" })
}
