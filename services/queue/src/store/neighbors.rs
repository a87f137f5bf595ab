//! The neighbors of an entry in line, in Postgres.

use onsale_storage::postgres::{Postgres, Row, row::RowExt as _};
use onsale_types::{CustomerId, EventId};

use crate::{
    domain::{
        neighborhood::{EntryWithNeighbors, OwnEntry, PublicProfile},
        policy::QueueMode,
        refusal::Refusal,
    },
    error::Error,
};

// One statement, so that entry and neighbors are of one snapshot. Both sides follow the index of waiting entries, nearest
// first.
const READ: &str = "SELECT line.revision, queue.mode, own.entry_id, own.seq, own.state,
        near.seq AS near_seq, near.display_name, near.avatar_url
    FROM queue JOIN line USING (event_id)
    LEFT JOIN LATERAL (
        SELECT entry_id, seq, state FROM entry
        WHERE customer_id = $2 AND (event_id = $1) IS TRUE ORDER BY seq DESC LIMIT 1
    ) own ON true
    LEFT JOIN LATERAL (
        (SELECT seq, display_name, avatar_url FROM entry
            WHERE event_id = $1 AND state = 'WAITING' AND seq < own.seq ORDER BY seq DESC LIMIT $3)
        UNION ALL
        (SELECT seq, display_name, avatar_url FROM entry
            WHERE event_id = $1 AND state = 'WAITING' AND seq > own.seq ORDER BY seq LIMIT $3)
    ) near ON own.state = 'WAITING'
    WHERE queue.event_id = $1 AND queue.organizer_id IS NOT NULL
    ORDER BY near.seq";

/// Reads the customer's newest entry and up to `neighbors_max` waiting entries on either side of it. An unknown event is not
/// found.
pub(crate) async fn read(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
    neighbors_max: u32,
) -> Result<EntryWithNeighbors, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let rows = postgres.query("neighbors", READ, &[&event, &customer, &i64::from(neighbors_max)]).await?;
    let first = rows.first().ok_or(Refusal::EventNotFound { event_id })?;
    let own = read_own(first)?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for row in &rows {
        // The number is NULL in the single row of an entry without neighbors.
        let Some(seq) = row.read_optional_count("near_seq")? else { continue };
        let profile = PublicProfile {
            seq,
            display_name: row.read("display_name")?,
            avatar_url: row.read("avatar_url")?,
        };
        let is_before = own.is_some_and(|own| seq < own.seq);
        if is_before { &mut before } else { &mut after }.push(profile);
    }
    let is_tracked = first.read_named::<QueueMode>("mode")? == QueueMode::Tracked;
    Ok(EntryWithNeighbors { revision: first.read_count("revision")?, is_tracked, own, before, after })
}

fn read_own(row: &Row) -> Result<Option<OwnEntry>, Error> {
    let Some(seq) = row.read_optional_count("seq")? else { return Ok(None) };
    Ok(Some(OwnEntry { entry_id: row.read_id("entry_id")?, seq, state: row.read_named("state")? }))
}
