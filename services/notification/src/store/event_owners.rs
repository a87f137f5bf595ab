//! Whose events they are: who may ask about their messages.

use onsale_storage::postgres::{Postgres, Transaction, column};
use onsale_types::{EventId, OrganizerId};
use uuid::Uuid;

use super::Error;

// An event never changes hands.
const NOTE: &str = "INSERT INTO event_owner (event_id, organizer_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const FIND: &str =
    "SELECT organizer_id, EXISTS (SELECT FROM job WHERE job.event_id = event_owner.event_id) AS has_jobs
    FROM event_owner WHERE event_id = $1";

/// What is known of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Whose it is.
    pub organizer_id: OrganizerId,
    /// Whether anything was ever to be said about it. If not, it may still be a draft.
    pub has_jobs: bool,
}

/// Notes whose event it is.
pub async fn note(
    transaction: &Transaction,
    event_id: EventId,
    organizer_id: OrganizerId,
) -> Result<(), Error> {
    transaction.execute(NOTE, &[&event_id.as_uuid(), &organizer_id.as_uuid()]).await?;
    Ok(())
}

/// Whose event it is, if we know.
pub async fn find(postgres: &Postgres, event_id: EventId) -> Result<Option<Ownership>, Error> {
    let row = postgres.query_opt("find owner", FIND, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    let organizer_id: Uuid = column(&row, "organizer_id")?;
    let has_jobs = column(&row, "has_jobs")?;
    Ok(Some(Ownership { organizer_id: OrganizerId::from_uuid(organizer_id), has_jobs }))
}
