//! Entries and their turns in Postgres. An entry changes under the lock of its line only.

use std::collections::BTreeMap;

use onsale_storage::postgres::{
    Postgres, Row, Transaction,
    row::{RowExt as _, SqlCount, SqlTime, uuids},
};
use onsale_types::{ClaimId, CustomerId, EntryId, EventId, Named as _, Timestamp};

use crate::{
    domain::{
        entry::{Entry, ExpireReason, FoundEntry},
        policy::Policy,
        turn::{Turn, TurnCheck, TurnKey},
    },
    error::Error,
};

// A customer's entries are found by the index of requests, which begins with the customer; `IS TRUE` hides the other conditions
// from the planner (see `store/lines.rs`).
const OPEN: &str = concat!(
    "SELECT ",
    entry_columns!(),
    " FROM entry WHERE customer_id = ANY($2) AND (event_id = $1 AND state IN ('WAITING', 'ADMITTED')) IS TRUE"
);
const NEWEST: &str = concat!(
    "SELECT ",
    entry_columns!(),
    " FROM entry WHERE customer_id = $2 AND (event_id = $1) IS TRUE ORDER BY seq DESC LIMIT 1"
);
const NEWEST_BY_CUSTOMER: &str = concat!(
    "SELECT DISTINCT ON (customer_id) ",
    entry_columns!(),
    ", (SELECT revision FROM line WHERE event_id = $1) AS line_revision, clock_timestamp() AS now FROM entry
    WHERE customer_id = ANY($2) AND (event_id = $1) IS TRUE ORDER BY customer_id, seq DESC"
);
const BY_IDS: &str = concat!("SELECT ", entry_columns!(), " FROM entry WHERE entry_id = ANY($1)");
// Fencing numbers ascend with the numbers in line.
const ADMIT: &str = concat!(
    "UPDATE entry SET state = 'ADMITTED', revision = $3, fencing_number = $4 + next.place, grant_time = $5,
        expire_time = $6
    FROM (SELECT first.id, row_number() OVER (ORDER BY first.place) AS place
        FROM (SELECT entry_id AS id, seq AS place FROM entry
            WHERE event_id = $1 AND state = 'WAITING' ORDER BY seq LIMIT $2) first
    ) next
    WHERE entry_id = next.id
    RETURNING ",
    entry_columns!()
);
const END: &str = concat!(
    "UPDATE entry SET state = $2, expire_reason = $3, revision = $4, end_time = $5
    WHERE entry_id = ANY($1) AND state IN ('WAITING', 'ADMITTED') RETURNING ",
    entry_columns!()
);
const COMPLETE: &str = concat!(
    "UPDATE entry SET state = 'COMPLETED', expire_reason = NULL, claim_id = $2, revision = $3, end_time = $4
    WHERE entry_id = $1 RETURNING ",
    entry_columns!()
);
const TURN_CHECK: &str = concat!(
    "SELECT ",
    entry_columns!(),
    ", clock_timestamp() AS now,
        EXISTS (SELECT FROM blocked_customer kept WHERE kept.event_id = $1 AND kept.customer_id = $2) AS is_blocked
    FROM entry
    WHERE customer_id = $2 AND (event_id = $1 AND fencing_number >= $3) IS TRUE ORDER BY fencing_number"
);
// The same for many turns. `OFFSET 0` forces one index scan per turn: as a join, the planner may read the whole table.
const TURN_CHECKS: &str = concat!(
    "SELECT asked.place, found.*, clock_timestamp() AS now,
        (SELECT true FROM blocked_customer kept WHERE kept.event_id = asked.event_id
            AND kept.customer_id = asked.customer_id LIMIT 1) IS NOT NULL AS is_blocked
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS asked (event_id, customer_id, number, place)
    CROSS JOIN LATERAL (SELECT ",
    entry_columns!(),
    " FROM entry WHERE customer_id = asked.customer_id
        AND (event_id = asked.event_id AND fencing_number >= asked.number) IS TRUE
        ORDER BY fencing_number OFFSET 0) found
    ORDER BY asked.place, found.fencing_number"
);
const OVERDUE: &str = "SELECT DISTINCT event_id FROM entry WHERE state = 'ADMITTED' AND expire_time <= now()";
const OVERDUE_OF: &str = "SELECT entry_id FROM entry
    WHERE event_id = $1 AND state = 'ADMITTED' AND expire_time <= $2 ORDER BY expire_time LIMIT $3";
const FIRST_WAITING: &str =
    "SELECT entry_id FROM entry WHERE event_id = $1 AND state = 'WAITING' ORDER BY seq LIMIT $2";
const WAITING_AMONG: &str = "SELECT entry_id FROM entry
    WHERE event_id = $1 AND entry_id = ANY($2) AND state = 'WAITING' AND join_time <= $3";
const PAGE: &str = "SELECT entry_id, seq FROM entry
    WHERE event_id = $1 AND state = 'WAITING' AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
const POSITIONS: &str = "SELECT seq, position FROM (
        SELECT seq, row_number() OVER (ORDER BY seq) AS position FROM entry WHERE event_id = $1 AND state = 'WAITING'
    ) line WHERE seq = ANY($2)";

/// Returns the open entries of these customers in the event.
pub(crate) async fn open(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[CustomerId],
) -> Result<Vec<Entry>, Error> {
    read_entries(transaction.query(OPEN, &[&event_id.as_uuid(), &uuids(customers)]).await?)
}

/// Returns the customer's newest entry in the event, which is the open one if there is one.
pub(crate) async fn newest(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<Option<Entry>, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let row = postgres.query_opt("newest entry", NEWEST, &[&event, &customer]).await?;
    row.as_ref().map(read_entry).transpose()
}

/// Returns the newest entry of each of these customers in the event; customers without an entry are left out.
pub(crate) async fn newest_by_customer(
    postgres: &Postgres,
    event_id: EventId,
    customers: &[CustomerId],
) -> Result<Vec<FoundEntry>, Error> {
    let customers = uuids(customers);
    let rows =
        postgres.query("newest entries", NEWEST_BY_CUSTOMER, &[&event_id.as_uuid(), &customers]).await?;
    let found = |row: &Row| {
        Ok(FoundEntry {
            entry: read_entry(row)?,
            revision: row.read_count("line_revision")?,
            now: row.read_time("now")?,
        })
    };
    rows.iter().map(found).collect()
}

/// Like [`newest`], in a transaction.
pub(crate) async fn newest_in(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<Option<Entry>, Error> {
    let row = transaction.query_opt(NEWEST, &[&event_id.as_uuid(), &customer_id.as_uuid()]).await?;
    row.as_ref().map(read_entry).transpose()
}

/// Returns these entries, in any order.
pub(crate) async fn by_ids(postgres: &Postgres, entries: &[EntryId]) -> Result<Vec<Entry>, Error> {
    read_entries(postgres.query("entries by id", BY_IDS, &[&uuids(entries)]).await?)
}

/// Grants turns to the first `count` waiting entries and returns them in the order of the line.
pub(crate) async fn admit(
    transaction: &Transaction,
    event_id: EventId,
    count: u64,
    revision: u64,
    last_fencing_number: u64,
    now: Timestamp,
    policy: &Policy,
) -> Result<Vec<Entry>, Error> {
    let expire_time = now.checked_add(policy.turn_duration).unwrap_or(now);
    let rows = transaction
        .query(
            ADMIT,
            &[
                &event_id.as_uuid(),
                &SqlCount(count),
                &SqlCount(revision),
                &SqlCount(last_fencing_number),
                &SqlTime(now),
                &SqlTime(expire_time),
            ],
        )
        .await?;
    let mut entries = read_entries(rows)?;
    entries.sort_by_key(|entry| entry.seq);
    Ok(entries)
}

/// Ends those of the entries that are open, without a purchase, and returns them.
pub(crate) async fn end(
    transaction: &Transaction,
    entries: &[EntryId],
    reason: ExpireReason,
    revision: u64,
    now: Timestamp,
) -> Result<Vec<Entry>, Error> {
    let (state, reason) = (reason.state().name(), reason.name());
    let rows = transaction
        .query(END, &[&uuids(entries), &state, &reason, &SqlCount(revision), &SqlTime(now)])
        .await?;
    read_entries(rows)
}

/// Ends an entry with a purchase and returns it.
pub(crate) async fn complete(
    transaction: &Transaction,
    entry_id: EntryId,
    claim_id: ClaimId,
    revision: u64,
    now: Timestamp,
) -> Result<Entry, Error> {
    let row = transaction
        .query_one(COMPLETE, &[&entry_id.as_uuid(), &claim_id.as_uuid(), &SqlCount(revision), &SqlTime(now)])
        .await?;
    read_entry(&row)
}

/// Reads the facts about each of these turns, in their order, with the database's time. The time is the epoch of Unix for a
/// turn of which nothing is stored.
pub(crate) async fn turn_checks(
    postgres: &Postgres,
    turns: &[TurnKey],
) -> Result<Vec<(TurnCheck, Timestamp)>, Error> {
    let events = uuids(turns.iter().map(|turn| &turn.event_id));
    let customers = uuids(turns.iter().map(|turn| &turn.customer_id));
    let numbers: Vec<SqlCount<u64>> = turns.iter().map(|turn| SqlCount(turn.fencing_number)).collect();
    let rows = postgres.query("check turns", TURN_CHECKS, &[&events, &customers, &numbers]).await?;
    let mut found: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
    for row in rows {
        found.entry(row.read_count("place")?).or_default().push(row);
    }
    let check = |(place, turn): (u64, &TurnKey)| {
        let rows = found.remove(&place).unwrap_or_default();
        let now = rows.first().map(|row| row.read_time("now")).transpose()?.unwrap_or(Timestamp::EPOCH);
        Ok((read_turn_check(turn, rows)?, now))
    };
    (1..).zip(turns).map(check).collect()
}

/// Reads the facts about one turn, in a transaction.
pub(crate) async fn turn_check_in(transaction: &Transaction, turn: &TurnKey) -> Result<TurnCheck, Error> {
    let (event, customer) = (turn.event_id.as_uuid(), turn.customer_id.as_uuid());
    let rows = transaction.query(TURN_CHECK, &[&event, &customer, &SqlCount(turn.fencing_number)]).await?;
    read_turn_check(turn, rows)
}

/// Returns the events in which a turn has expired.
pub(crate) async fn events_with_expired_turns(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    let rows = postgres.query("find overdue", OVERDUE, &[]).await?;
    rows.iter().map(|row| Ok(row.read_id("event_id")?)).collect()
}

/// Returns at most `entries_max` entries of the event whose turn has expired at `now`.
pub(crate) async fn expired_turns(
    transaction: &Transaction,
    event_id: EventId,
    now: Timestamp,
    entries_max: u32,
) -> Result<Vec<EntryId>, Error> {
    let (event, limit) = (event_id.as_uuid(), i64::from(entries_max));
    read_ids(transaction.query(OVERDUE_OF, &[&event, &SqlTime(now), &limit]).await?)
}

/// Returns the first `entries_max` waiting entries.
pub(crate) async fn first_waiting(
    transaction: &Transaction,
    event_id: EventId,
    entries_max: u32,
) -> Result<Vec<EntryId>, Error> {
    read_ids(transaction.query(FIRST_WAITING, &[&event_id.as_uuid(), &i64::from(entries_max)]).await?)
}

/// Returns those of the entries that wait and joined at `joined_until` or earlier.
pub(crate) async fn waiting_among(
    transaction: &Transaction,
    event_id: EventId,
    entries: &[EntryId],
    joined_until: Timestamp,
) -> Result<Vec<EntryId>, Error> {
    let (event, joined_until) = (event_id.as_uuid(), SqlTime(joined_until));
    read_ids(transaction.query(WAITING_AMONG, &[&event, &uuids(entries), &joined_until]).await?)
}

/// Returns a page of the waiting entries with numbers above `after` up to `upto`, in the order of the line.
pub(crate) async fn page(
    postgres: &Postgres,
    event_id: EventId,
    after: u64,
    upto: u64,
    entries_max: u32,
) -> Result<Vec<(EntryId, u64)>, Error> {
    let (event, limit) = (event_id.as_uuid(), i64::from(entries_max));
    let rows =
        postgres.query("page of waiting", PAGE, &[&event, &SqlCount(after), &SqlCount(upto), &limit]).await?;
    rows.iter().map(|row| Ok((row.read_id("entry_id")?, row.read_count("seq")?))).collect()
}

/// Returns number and position of those of `seqs` that wait. Counts the whole line, so its cost grows with the line.
pub(crate) async fn positions(
    postgres: &Postgres,
    event_id: EventId,
    seqs: &[u64],
) -> Result<Vec<(u64, u64)>, Error> {
    let seqs: Vec<SqlCount<u64>> = seqs.iter().map(|seq| SqlCount(*seq)).collect();
    let rows = postgres.query("count positions", POSITIONS, &[&event_id.as_uuid(), &seqs]).await?;
    rows.iter().map(|row| Ok((row.read_count("seq")?, row.read_count("position")?))).collect()
}

fn read_turn_check(turn: &TurnKey, rows: Vec<Row>) -> Result<TurnCheck, Error> {
    let is_blocked = rows.first().map(|row| row.read("is_blocked")).transpose()?.unwrap_or(false);
    let entries = read_entries(rows)?;
    let fencing = |entry: &Entry| entry.turn.map(|turn| turn.fencing_number);
    let newest_fencing_number = entries.last().and_then(fencing);
    let entry = entries.into_iter().find(|entry| fencing(entry) == Some(turn.fencing_number));
    let TurnKey { event_id, fencing_number, .. } = *turn;
    Ok(TurnCheck { event_id, fencing_number, entry, newest_fencing_number, is_blocked })
}

fn read_ids(rows: Vec<Row>) -> Result<Vec<EntryId>, Error> {
    rows.iter().map(|row| Ok(row.read_id("entry_id")?)).collect()
}

fn read_entries(rows: Vec<Row>) -> Result<Vec<Entry>, Error> {
    rows.iter().map(read_entry).collect()
}

pub(crate) fn read_entry(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
        entry_id: row.read_id("entry_id")?,
        event_id: row.read_id("event_id")?,
        customer_id: row.read_id("customer_id")?,
        seq: row.read_count("seq")?,
        state: row.read_named("state")?,
        join_time: row.read_time("join_time")?,
        display_name: row.read("display_name")?,
        avatar_url: row.read("avatar_url")?,
        turn: read_turn(row)?,
        end_time: row.read_optional_time("end_time")?,
        expire_reason: row.read_optional_named("expire_reason")?,
        claim_id: row.read_optional_id("claim_id")?,
    })
}

fn read_turn(row: &Row) -> Result<Option<Turn>, Error> {
    let Some(fencing_number) = row.read_optional_count("fencing_number")? else { return Ok(None) };
    let (grant_time, expire_time) = (row.read_time("grant_time")?, row.read_time("expire_time")?);
    Ok(Some(Turn { fencing_number, grant_time, expire_time }))
}
