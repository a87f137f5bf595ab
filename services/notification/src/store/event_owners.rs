//! Organizers of events. They decide who may see the deliveries about an event.

use onsale_storage::postgres::{Error, Postgres, Transaction, row::RowExt as _};
use onsale_types::{EventId, OrganizerId};

// The first record stays: an event never changes its organizer.
const RECORD: &str =
    "INSERT INTO event_owner (event_id, organizer_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
const FIND: &str =
    "SELECT organizer_id, EXISTS (SELECT FROM job WHERE job.event_id = event_owner.event_id) AS has_jobs
    FROM event_owner WHERE event_id = $1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventOwner {
    pub(crate) organizer_id: OrganizerId,
    /// False: no message about the event was ever requested, so it may still be a draft.
    pub(crate) has_jobs: bool,
}

pub(crate) async fn record(
    transaction: &Transaction,
    event_id: EventId,
    organizer_id: OrganizerId,
) -> Result<(), Error> {
    transaction.execute(RECORD, &[&event_id.as_uuid(), &organizer_id.as_uuid()]).await?;
    Ok(())
}

/// Returns the owner, or `None` if no `generation.completed` of the event has arrived.
pub(crate) async fn find(postgres: &Postgres, event_id: EventId) -> Result<Option<EventOwner>, Error> {
    let row = postgres.query_opt("find owner", FIND, &[&event_id.as_uuid()]).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(EventOwner { organizer_id: row.read_id("organizer_id")?, has_jobs: row.read("has_jobs")? }))
}
