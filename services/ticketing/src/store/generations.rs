//! Jobs, and the batches in which they make tickets.

use onsale_kit::backoff::BackoffConfig;
use onsale_storage::postgres::{CopyRows, Parameters, Postgres, Row, Transaction, Type, column};
use onsale_types::{EventId, GenerationId, OrganizerId, SectorId, TicketId, Timestamp};
use uuid::Uuid;

use super::{count, events, from_sql_count, sql_count, time, time_opt};
use crate::{
    domain::{
        event::EventPlan,
        generation::{Batch, Generation, GenerationState, OpenJob, SectorProgress},
    },
    error::Error,
};

// One job of an event is open at most; it changes its aim.
const AIM: &str = "INSERT INTO generation (generation_id, event_id, revision, sector_ids, ticket_counts)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (event_id) WHERE state <> 'COMPLETED' DO UPDATE SET
        revision = excluded.revision, sector_ids = excluded.sector_ids,
        ticket_counts = excluded.ticket_counts, state = 'PENDING', failure_count = 0,
        next_attempt_time = now(), start_time = NULL, end_time = NULL";
const TAKE_UP: &str = "UPDATE generation
    SET state = 'PENDING', failure_count = 0, next_attempt_time = now(), end_time = NULL
    WHERE event_id = $1 AND state = 'FAILED'";
const FIND: &str =
    "SELECT generation_id, event_id, state, sector_ids, ticket_counts, create_time, start_time,
        end_time,
        ARRAY (SELECT coalesce(generated_count, 0)
            FROM unnest(sector_ids) WITH ORDINALITY AS planned (sector_id, place)
            LEFT JOIN sector USING (sector_id) ORDER BY planned.place) AS generated_counts
    FROM generation WHERE generation_id = $1";
const NEWEST: &str = "SELECT generation_id FROM generation WHERE event_id = $1
    ORDER BY create_time DESC, generation_id DESC LIMIT 1";
const DUE: &str = "SELECT generation_id, event_id FROM generation
    WHERE state IN ('PENDING', 'RUNNING') AND next_attempt_time <= now()
    ORDER BY next_attempt_time LIMIT $1";
const BEGIN: &str = "UPDATE generation SET state = 'RUNNING', start_time = now()
    WHERE generation_id = $1 AND state = 'PENDING'";
// Whoever has the row works on the sector; the others find another, or nothing.
const CLAIM_SECTOR: &str = "SELECT sector_id, capacity, generated_count FROM sector
    WHERE event_id = $1 AND generated_count <> capacity ORDER BY place LIMIT 1 FOR UPDATE SKIP LOCKED";
const MAKE: &str = "COPY ticket (sector_id, unit, ticket_id) FROM STDIN (FORMAT binary)";
const TRIM: &str =
    "DELETE FROM ticket WHERE sector_id = $1 AND unit BETWEEN $2 AND $3 AND state = 'GENERATED'";
const COUNT: &str = "UPDATE sector SET generated_count = $2 WHERE sector_id = $1";
const LOCK_OPEN: &str = "SELECT generation.revision, organizer_id, event_id, name AS event_name, venue_name,
        venue_address, time_zone, event.start_time
    FROM generation JOIN event USING (event_id)
    WHERE generation_id = $1 AND generation.state IN ('PENDING', 'RUNNING')
    FOR UPDATE OF generation SKIP LOCKED";
// A statement of its own, after the lock: it sees what a plan that came before it has committed.
const TOTALS: &str = "SELECT coalesce(sum(capacity), 0)::integer AS ticket_count,
        coalesce(bool_and(generated_count = capacity), true) AS is_complete
    FROM sector WHERE event_id = $1";
const COMPLETE: &str = "UPDATE generation
    SET state = 'COMPLETED', failure_count = 0, start_time = coalesce(start_time, now()), end_time = now()
    WHERE generation_id = $1 RETURNING end_time";
const FAIL: &str = "UPDATE generation SET
        failure_count = failure_count + 1,
        next_attempt_time = now()
            + random() * least($3::float8, $2::float8 * power($4::float8, least(failure_count, 30)))
            * interval '1 second',
        state = CASE WHEN failure_count + 1 >= $5 THEN 'FAILED' ELSE state END,
        end_time = CASE WHEN failure_count + 1 >= $5 THEN now() END
    WHERE generation_id = $1 AND state IN ('PENDING', 'RUNNING') RETURNING state, failure_count";
const SUCCEED: &str =
    "UPDATE generation SET failure_count = 0 WHERE generation_id = $1 AND failure_count > 0";

/// A job that somebody has to work on.
#[derive(Clone, Copy, Debug)]
pub struct DueJob {
    /// The job.
    pub generation_id: GenerationId,
    /// Its event.
    pub event_id: EventId,
}

/// A sector that this transaction has for itself.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedSector {
    /// The sector.
    pub sector_id: SectorId,
    /// How many tickets it is to have.
    pub capacity: u32,
    /// How many it has.
    pub generated_count: u32,
}

/// Aims the event's open job at `plan`, or creates one.
pub async fn aim(transaction: &Transaction, plan: &EventPlan) -> Result<(), Error> {
    let id = GenerationId::generate().as_uuid();
    let sector_ids: Vec<Uuid> = plan.sectors.iter().map(|sector| sector.sector_id.as_uuid()).collect();
    let ticket_counts: Vec<i32> =
        plan.sectors.iter().map(|sector| sql_count(sector.capacity)).collect::<Result<_, _>>()?;
    let event_id = plan.event.event_id.as_uuid();
    transaction.execute(AIM, &[&id, &event_id, &plan.revision, &sector_ids, &ticket_counts]).await?;
    Ok(())
}

/// Lets the event's failed job, if it has one, begin again.
pub async fn take_up(transaction: &Transaction, event_id: EventId) -> Result<(), Error> {
    transaction.execute(TAKE_UP, &[&event_id.as_uuid()]).await?;
    Ok(())
}

/// A job by its id.
pub async fn find(postgres: &Postgres, id: GenerationId) -> Result<Option<Generation>, Error> {
    let row = postgres.query_opt("find generation", FIND, &[&id.as_uuid()]).await?;
    row.as_ref().map(generation).transpose()
}

/// The same, as `transaction` sees it.
pub async fn find_in(transaction: &Transaction, id: GenerationId) -> Result<Option<Generation>, Error> {
    let row = transaction.query_opt(FIND, &[&id.as_uuid()]).await?;
    row.as_ref().map(generation).transpose()
}

/// The id of an event's newest job.
pub async fn newest(postgres: &Postgres, event_id: EventId) -> Result<Option<GenerationId>, Error> {
    let row = postgres.query_opt("newest generation", NEWEST, &[&event_id.as_uuid()]).await?;
    row.map(|row| Ok(GenerationId::from_uuid(column(&row, "generation_id")?))).transpose()
}

/// Jobs to work on, those that have waited longest first.
pub async fn due(postgres: &Postgres, jobs_max: i64) -> Result<Vec<DueJob>, Error> {
    let rows = postgres.query("due generations", DUE, &[&jobs_max]).await?;
    let job = |row: &Row| {
        Ok(DueJob {
            generation_id: GenerationId::from_uuid(column(row, "generation_id")?),
            event_id: EventId::from_uuid(column(row, "event_id")?),
        })
    };
    rows.iter().map(job).collect()
}

/// Notes that a worker has begun.
pub async fn begin(postgres: &Postgres, id: GenerationId) -> Result<(), Error> {
    postgres.execute("begin generation", BEGIN, &[&id.as_uuid()]).await?;
    Ok(())
}

/// Takes a sector of the event that is not done and that nobody else has.
pub async fn claim_sector(
    transaction: &Transaction,
    event_id: EventId,
) -> Result<Option<ClaimedSector>, Error> {
    let row = transaction.query_opt(CLAIM_SECTOR, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(ClaimedSector {
        sector_id: SectorId::from_uuid(column(&row, "sector_id")?),
        capacity: count(&row, "capacity")?,
        generated_count: count(&row, "generated_count")?,
    }))
}

/// Does one batch of a sector that `transaction` has claimed.
pub async fn apply(transaction: &Transaction, sector_id: SectorId, batch: Batch) -> Result<(), Error> {
    let sector = sector_id.as_uuid();
    let (Batch::Make { first, last } | Batch::Trim { first, last }) = batch;
    let (first, last) = (sql_count(first)?, sql_count(last)?);
    let done = match batch {
        Batch::Make { .. } => make(transaction, sector, first, last).await?,
        Batch::Trim { .. } => transaction.execute(TRIM, &[&sector, &first, &last]).await?,
    };
    if done != u64::from(batch.size()) {
        // Sold tickets are never removed: better too many than a paid one gone.
        return Err(Error::Corrupt { what: "a batch did not find the tickets as the sector counts them" });
    }
    let generated_count = sql_count(batch.generated_after())?;
    transaction.execute(COUNT, &[&sector, &generated_count]).await?;
    Ok(())
}

async fn make(transaction: &Transaction, sector: Uuid, first: i32, last: i32) -> Result<u64, Error> {
    let types = [Type::UUID, Type::INT4, Type::UUID];
    let units = first..=last;
    let mut rows = CopyRows::of(&types, units.clone().count());
    for unit in units {
        // Rising ids keep the index dense.
        rows.push(&[&sector, &unit, &TicketId::generate().as_uuid()])?;
    }
    Ok(transaction.copy_in(MAKE, rows).await?)
}

/// Takes a job for its completion; none if it is not open, or another is at it.
pub async fn lock_open(transaction: &Transaction, id: GenerationId) -> Result<Option<OpenJob>, Error> {
    let Some(row) = transaction.query_opt(LOCK_OPEN, &[&id.as_uuid()]).await? else { return Ok(None) };
    let event = events::summary(&row)?;
    let totals = transaction.query_one(TOTALS, &[&event.event_id.as_uuid()]).await?;
    Ok(Some(OpenJob {
        event,
        organizer_id: OrganizerId::from_uuid(column(&row, "organizer_id")?),
        revision: column(&row, "revision")?,
        ticket_count: count(&totals, "ticket_count")?,
        is_complete: column(&totals, "is_complete")?,
    }))
}

/// Completes a job that `transaction` has locked; answers when.
pub async fn complete(transaction: &Transaction, id: GenerationId) -> Result<Timestamp, Error> {
    time(&transaction.query_one(COMPLETE, &[&id.as_uuid()]).await?, "end_time")
}

/// Notes that a try failed; answers how many have in a row, and whether the job has given up. None: it is not open.
pub async fn fail(
    postgres: &Postgres,
    id: GenerationId,
    retry: &BackoffConfig,
) -> Result<Option<(u32, GenerationState)>, Error> {
    let attempts_max = i32::try_from(retry.attempts_max).unwrap_or(i32::MAX);
    let (initial, max) = (retry.initial.as_secs_f64(), retry.max.as_secs_f64());
    let multiplier = f64::from(retry.multiplier);
    let id = id.as_uuid();
    let values: Parameters<'_> = &[&id, &initial, &max, &multiplier, &attempts_max];
    // Should the connection break it may count twice, which only makes the job give up sooner.
    let row = postgres.query_opt("fail generation", FAIL, values).await?;
    row.map(|row| Ok((count(&row, "failure_count")?, state(column(&row, "state")?)?))).transpose()
}

/// Notes that a try succeeded.
pub async fn succeed(postgres: &Postgres, id: GenerationId) -> Result<(), Error> {
    postgres.execute("succeed generation", SUCCEED, &[&id.as_uuid()]).await?;
    Ok(())
}

fn generation(row: &Row) -> Result<Generation, Error> {
    let state = state(column(row, "state")?)?;
    let sector_ids: Vec<Uuid> = column(row, "sector_ids")?;
    let ticket_counts: Vec<i32> = column(row, "ticket_counts")?;
    let generated_counts: Vec<i32> = column(row, "generated_counts")?;
    let mut sectors = Vec::with_capacity(sector_ids.len());
    for ((id, wanted), now) in sector_ids.into_iter().zip(ticket_counts).zip(generated_counts) {
        let ticket_count = from_sql_count(wanted)?;
        // A completed job made all of its tickets, whatever a later one does; and surplus is not progress.
        let generated_count = match state {
            GenerationState::Completed => ticket_count,
            GenerationState::Pending | GenerationState::Running | GenerationState::Failed => {
                from_sql_count(now)?.min(ticket_count)
            }
        };
        sectors.push(SectorProgress { sector_id: SectorId::from_uuid(id), ticket_count, generated_count });
    }
    Ok(Generation {
        generation_id: GenerationId::from_uuid(column(row, "generation_id")?),
        event_id: EventId::from_uuid(column(row, "event_id")?),
        state,
        sectors,
        create_time: time(row, "create_time")?,
        start_time: time_opt(row, "start_time")?,
        end_time: time_opt(row, "end_time")?,
    })
}

fn state(text: &str) -> Result<GenerationState, Error> {
    match text {
        "PENDING" => Ok(GenerationState::Pending),
        "RUNNING" => Ok(GenerationState::Running),
        "COMPLETED" => Ok(GenerationState::Completed),
        "FAILED" => Ok(GenerationState::Failed),
        _ => Err(Error::Corrupt { what: "a generation's state is unknown" }),
    }
}
