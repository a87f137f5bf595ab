//! Generations, and the batches in which they create and remove tickets.

use onsale_kit::backoff::BackoffConfig;
use onsale_storage::postgres::{
    self, CopyRows, Parameters, Postgres, Row, Transaction, Type,
    row::{RowExt as _, SqlCount, uuids},
};
use onsale_types::{EventId, GenerationId, SectorId, TicketId, Timestamp};

use super::events;
use crate::{
    domain::{
        event::EventPlan,
        generation::{Batch, Generation, GenerationState, OpenGeneration, SectorProgress},
    },
    error::Error,
};

// An event has at most one generation that is not COMPLETED. If there is one, it takes over the new revision.
const RETARGET: &str = "INSERT INTO generation (generation_id, event_id, revision, sector_ids, ticket_counts)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (event_id) WHERE state <> 'COMPLETED' DO UPDATE SET
        revision = excluded.revision, sector_ids = excluded.sector_ids,
        ticket_counts = excluded.ticket_counts, state = 'PENDING', failure_count = 0,
        next_attempt_time = now(), start_time = NULL, end_time = NULL";
const RESTART_FAILED: &str = "UPDATE generation
    SET state = 'PENDING', failure_count = 0, next_attempt_time = now(), end_time = NULL
    WHERE event_id = $1 AND state = 'FAILED'";
const GET: &str = "SELECT generation_id, event_id, state, sector_ids, ticket_counts, create_time, start_time,
        end_time,
        ARRAY (SELECT coalesce(generated_count, 0)
            FROM unnest(sector_ids) WITH ORDINALITY AS planned (sector_id, place)
            LEFT JOIN sector USING (sector_id) ORDER BY planned.place) AS generated_counts
    FROM generation WHERE generation_id = $1";
const NEWEST: &str = "SELECT generation_id FROM generation WHERE event_id = $1
    ORDER BY create_time DESC, generation_id DESC LIMIT 1";
// Not a `due_table!`: several generators work on one generation at the same time, so it is not leased.
const DUE: &str = "SELECT generation_id, event_id FROM generation
    WHERE state IN ('PENDING', 'RUNNING') AND next_attempt_time <= now()
    ORDER BY next_attempt_time LIMIT $1";
const START: &str = "UPDATE generation SET state = 'RUNNING', start_time = now()
    WHERE generation_id = $1 AND state = 'PENDING'";
// The row lock gives the sector to one generator. The others skip it.
const LOCK_NEXT_SECTOR: &str = "SELECT sector_id, capacity, generated_count FROM sector
    WHERE event_id = $1 AND generated_count <> capacity ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED";
const COPY_TICKETS: &str = "COPY ticket (sector_id, unit, ticket_id) FROM STDIN (FORMAT binary)";
// A ticket that was sold is never removed.
const REMOVE_TICKETS: &str =
    "DELETE FROM ticket WHERE sector_id = $1 AND unit BETWEEN $2 AND $3 AND state = 'GENERATED'";
const SET_COUNT: &str = "UPDATE sector SET generated_count = $2 WHERE sector_id = $1";
const LOCK_OPEN: &str = "SELECT generation.revision, organizer_id, event_id, name AS event_name, venue_name,
        venue_address, time_zone, event.start_time
    FROM generation JOIN event USING (event_id)
    WHERE generation_id = $1 AND generation.state IN ('PENDING', 'RUNNING')
    FOR UPDATE OF generation SKIP LOCKED";
// A statement of its own after LOCK_OPEN: its snapshot includes every revision that was committed before the lock was taken.
const TOTALS: &str = "SELECT coalesce(sum(capacity), 0)::integer AS ticket_count,
        coalesce(bool_and(generated_count = capacity), true) AS is_complete
    FROM sector WHERE event_id = $1";
const COMPLETE: &str = "UPDATE generation
    SET state = 'COMPLETED', failure_count = 0, start_time = coalesce(start_time, now()), end_time = now()
    WHERE generation_id = $1 RETURNING end_time";
const RECORD_FAILURE: &str = "UPDATE generation SET
        failure_count = failure_count + 1,
        next_attempt_time = now()
            + random() * least($3::float8, $2::float8 * power($4::float8, least(failure_count, 30)))
            * interval '1 second',
        state = CASE WHEN failure_count + 1 >= $5 THEN 'FAILED' ELSE state END,
        end_time = CASE WHEN failure_count + 1 >= $5 THEN now() END
    WHERE generation_id = $1 AND state IN ('PENDING', 'RUNNING') RETURNING state, failure_count";
const RESET_FAILURES: &str =
    "UPDATE generation SET failure_count = 0 WHERE generation_id = $1 AND failure_count > 0";

/// A generation that generators may work on now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueGeneration {
    pub(crate) generation_id: GenerationId,
    pub(crate) event_id: EventId,
}

/// An unfinished sector that only this transaction may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedSector {
    pub(crate) sector_id: SectorId,
    /// Number of tickets that the sector should have.
    pub(crate) capacity: u32,
    /// Number of tickets that it has.
    pub(crate) generated_count: u32,
}

/// Points the event's open generation at `plan` and restarts it, or inserts one.
pub(crate) async fn retarget(transaction: &Transaction, plan: &EventPlan) -> Result<(), postgres::Error> {
    let sector_ids = uuids(plan.sectors.iter().map(|sector| &sector.sector_id));
    let ticket_counts: Vec<_> = plan.sectors.iter().map(|sector| SqlCount(sector.capacity)).collect();
    let values: Parameters<'_> = &[
        &GenerationId::generate().as_uuid(),
        &plan.event.event_id.as_uuid(),
        &SqlCount(plan.revision),
        &sector_ids,
        &ticket_counts,
    ];
    transaction.execute(RETARGET, values).await.map(drop)
}

/// Makes the event's FAILED generation PENDING again. Does nothing if there is none.
pub(crate) async fn restart_failed(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<(), postgres::Error> {
    transaction.execute(RESTART_FAILED, &[&event_id.as_uuid()]).await.map(drop)
}

pub(crate) async fn get(
    postgres: &Postgres,
    generation_id: GenerationId,
) -> Result<Option<Generation>, postgres::Error> {
    let row = postgres.query_opt("find generation", GET, &[&generation_id.as_uuid()]).await?;
    row.as_ref().map(generation).transpose()
}

/// Like [`get`], in a transaction.
pub(crate) async fn get_in(
    transaction: &Transaction,
    generation_id: GenerationId,
) -> Result<Option<Generation>, postgres::Error> {
    let row = transaction.query_opt(GET, &[&generation_id.as_uuid()]).await?;
    row.as_ref().map(generation).transpose()
}

/// Returns the id of the event's newest generation.
pub(crate) async fn newest(
    postgres: &Postgres,
    event_id: EventId,
) -> Result<Option<GenerationId>, postgres::Error> {
    let row = postgres.query_opt("newest generation", NEWEST, &[&event_id.as_uuid()]).await?;
    row.map(|row| row.read_id("generation_id")).transpose()
}

/// Returns at most `rows_max` due generations, the longest due first.
pub(crate) async fn due(postgres: &Postgres, rows_max: u32) -> Result<Vec<DueGeneration>, postgres::Error> {
    let rows = postgres.query("due generations", DUE, &[&i64::from(rows_max)]).await?;
    let due = rows.iter().map(|row| {
        Ok(DueGeneration { generation_id: row.read_id("generation_id")?, event_id: row.read_id("event_id")? })
    });
    due.collect()
}

/// Makes a PENDING generation RUNNING.
pub(crate) async fn start(postgres: &Postgres, generation_id: GenerationId) -> Result<(), postgres::Error> {
    postgres.execute("begin generation", START, &[&generation_id.as_uuid()]).await.map(drop)
}

/// Locks the first unfinished sector of the event that no other transaction has locked.
pub(crate) async fn lock_next_sector(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<Option<LockedSector>, postgres::Error> {
    let row = transaction.query_opt(LOCK_NEXT_SECTOR, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(LockedSector {
        sector_id: row.read_id("sector_id")?,
        capacity: row.read_count("capacity")?,
        generated_count: row.read_count("generated_count")?,
    }))
}

/// Runs a batch of a sector that `transaction` has locked, and saves the sector's new count.
pub(crate) async fn apply(transaction: &Transaction, sector_id: SectorId, batch: Batch) -> Result<(), Error> {
    let changed = match batch {
        Batch::Generate { first, last } => copy_tickets(transaction, sector_id, first, last).await?,
        Batch::Remove { first, last } => {
            let values: Parameters<'_> = &[&sector_id.as_uuid(), &SqlCount(first), &SqlCount(last)];
            transaction.execute(REMOVE_TICKETS, values).await?
        }
    };
    if changed != u64::from(batch.size()) {
        // Rolls back, so sold tickets above the new capacity stay valid and the generation fails.
        return Err(Error::Inconsistent { what: "a batch did not find the tickets that its sector counts" });
    }
    let generated_count = SqlCount(batch.generated_after());
    transaction.execute(SET_COUNT, &[&sector_id.as_uuid(), &generated_count]).await?;
    Ok(())
}

async fn copy_tickets(
    transaction: &Transaction,
    sector_id: SectorId,
    first: u32,
    last: u32,
) -> Result<u64, postgres::Error> {
    let types = [Type::UUID, Type::INT4, Type::UUID];
    let (sector_id, units) = (sector_id.as_uuid(), first..=last);
    let mut rows = CopyRows::of(&types, units.clone().count());
    for unit in units {
        // Generated ids rise, which keeps the index dense.
        rows.push(&[&sector_id, &SqlCount(unit), &TicketId::generate().as_uuid()])?;
    }
    transaction.copy_in(COPY_TICKETS, rows).await
}

/// Locks a generation to complete it. Returns `None` if it is not open or another transaction has locked it.
pub(crate) async fn lock_open(
    transaction: &Transaction,
    generation_id: GenerationId,
) -> Result<Option<OpenGeneration>, postgres::Error> {
    let row = transaction.query_opt(LOCK_OPEN, &[&generation_id.as_uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    let event = events::summary(&row)?;
    let totals = transaction.query_one(TOTALS, &[&event.event_id.as_uuid()]).await?;
    Ok(Some(OpenGeneration {
        generation_id,
        event,
        organizer_id: row.read_id("organizer_id")?,
        revision: row.read_count("revision")?,
        ticket_count: totals.read_count("ticket_count")?,
        is_complete: totals.read("is_complete")?,
    }))
}

/// Completes a locked generation and returns the time of completion.
pub(crate) async fn complete(
    transaction: &Transaction,
    generation_id: GenerationId,
) -> Result<Timestamp, postgres::Error> {
    transaction.query_one(COMPLETE, &[&generation_id.as_uuid()]).await?.read_time("end_time")
}

/// Counts a failed attempt and puts the next one off, or makes the generation FAILED after `retry.attempts_max` failures in a
/// row. Returns the number of failures and the new state, or `None` if the generation is not open.
pub(crate) async fn record_failure(
    postgres: &Postgres,
    generation_id: GenerationId,
    retry: &BackoffConfig,
) -> Result<Option<(u32, GenerationState)>, postgres::Error> {
    let attempts_max = i32::try_from(retry.attempts_max).unwrap_or(i32::MAX);
    let (initial, max) = (retry.initial.as_secs_f64(), retry.max.as_secs_f64());
    let multiplier = f64::from(retry.multiplier);
    let values: Parameters<'_> = &[&generation_id.as_uuid(), &initial, &max, &multiplier, &attempts_max];
    // If the connection breaks, the statement runs again and may count twice. The generation then fails one attempt earlier.
    let row = postgres.query_opt("fail generation", RECORD_FAILURE, values).await?;
    row.map(|row| Ok((row.read_count("failure_count")?, row.read_named("state")?))).transpose()
}

/// Sets the number of failures in a row to 0.
pub(crate) async fn reset_failures(
    postgres: &Postgres,
    generation_id: GenerationId,
) -> Result<(), postgres::Error> {
    postgres.execute("succeed generation", RESET_FAILURES, &[&generation_id.as_uuid()]).await.map(drop)
}

fn generation(row: &Row) -> Result<Generation, postgres::Error> {
    let state = row.read_named("state")?;
    let sector_ids = row.read_ids("sector_ids")?;
    let ticket_counts = row.read_counts("ticket_counts")?;
    let existing_counts = row.read_counts("generated_counts")?;
    let sectors = sector_ids.into_iter().zip(ticket_counts).zip(existing_counts);
    let sectors = sectors.map(|((sector_id, ticket_count), existing_count)| {
        SectorProgress::new(state, sector_id, ticket_count, existing_count)
    });
    Ok(Generation {
        generation_id: row.read_id("generation_id")?,
        event_id: row.read_id("event_id")?,
        state,
        sectors: sectors.collect(),
        create_time: row.read_time("create_time")?,
        start_time: row.read_optional_time("start_time")?,
        end_time: row.read_optional_time("end_time")?,
    })
}
