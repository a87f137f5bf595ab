//! Who waits next to whom, in Postgres.

use onsale_storage::postgres::{Postgres, column};
use onsale_types::{CustomerId, EntryId, EventId};

use super::{count, named, uuid};
use crate::{
    domain::{entry::EntryState, refusal::Refusal},
    error::Error,
};

// One statement, so that all of it is of one moment. Both sides are read along the index of who waits, nearest first.
const AROUND: &str = "SELECT line.revision, queue.mode, own.entry_id, own.seq, own.state,
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

/// A customer's entry and who waits around it, at one moment.
#[derive(Clone, Debug)]
pub struct Around {
    /// Of the queue.
    pub revision: u64,
    /// Whether the queue knows who is next to whom.
    pub is_tracked: bool,
    /// The customer's newest entry.
    pub own: Option<Own>,
    /// Those just before it, in order of the line.
    pub before: Vec<Shown>,
    /// Those just after it, in order of the line.
    pub after: Vec<Shown>,
}

/// A customer's newest entry.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Its id.
    pub entry_id: EntryId,
    /// Its seq.
    pub seq: u64,
    /// Where it is in its life.
    pub state: EntryState,
}

/// What somebody in line chose to show; nothing else of them leaves the table.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Number in line.
    pub seq: u64,
    /// As name; empty: nothing.
    pub display_name: String,
    /// As picture; empty: nothing.
    pub avatar_url: String,
}

/// The customer's entry and up to `neighbors_max` who wait on either side of it. Refused when the event is not known.
pub async fn around(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
    neighbors_max: u32,
) -> Result<Around, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let rows = postgres.query("neighbors", AROUND, &[&event, &customer, &i64::from(neighbors_max)]).await?;
    let first = rows.first().ok_or(Refusal::EventNotFound { event_id })?;
    let own = match column::<Option<i64>>(first, "seq")? {
        Some(_) => Some(Own {
            entry_id: EntryId::from_uuid(uuid(first, "entry_id")?),
            seq: count(first, "seq")?,
            state: named(first, "state", EntryState::from_name)?,
        }),
        None => None,
    };
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for row in &rows {
        // A row without a neighbor stands for a customer who has none.
        if column::<Option<i64>>(row, "near_seq")?.is_none() {
            continue;
        }
        let near = Shown {
            seq: count(row, "near_seq")?,
            display_name: column(row, "display_name")?,
            avatar_url: column(row, "avatar_url")?,
        };
        let is_before = own.is_some_and(|own| near.seq < own.seq);
        if is_before { &mut before } else { &mut after }.push(near);
    }
    let is_tracked = column::<&str>(first, "mode")? == "TRACKED";
    Ok(Around { revision: count(first, "revision")?, is_tracked, own, before, after })
}
