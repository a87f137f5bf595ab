//! Entries and their turns in Postgres. What changes an entry happens under the lock of its line.

use std::collections::BTreeMap;

use onsale_storage::postgres::{Postgres, Row, Transaction, column};
use onsale_types::{ClaimId, CustomerId, EntryId, EventId, RequestId, Timestamp};
use uuid::Uuid;

use super::{count, named, optional_named, optional_time, sql_count, sql_time, time, uuid};
use crate::{
    domain::{
        entry::{Entry, EntryState, ExpireReason, Turn, TurnCheck, TurnName},
        line::Line,
        policy::Policy,
    },
    error::Error,
};

// Named one by one: with `*`, a migration that adds a column would break the statements that running pods have prepared.
macro_rules! columns {
    () => {
        "entry_id, event_id, customer_id, seq, state, join_time, display_name, avatar_url, fencing_number, grant_time,
        expire_time, end_time, expire_reason, claim_id"
    };
}

// A customer's entries are found by the index of requests, which begins with the customer. `IS TRUE` hides the rest from the
// planner: a table that a rush has just filled has no statistics yet, and it took indexes that begin with the event for as
// good, of which it then read all of the event, once per customer.
const OPEN_OF: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM entry WHERE customer_id = ANY($2) AND (event_id = $1 AND state IN ('WAITING', 'ADMITTED')) IS TRUE"
);
// Two questions with one look at the index of requests: what each customer has open here, and what these requests made.
const KNOWN_OF: &str = concat!(
    "SELECT ",
    columns!(),
    ", request_id, fingerprint FROM entry WHERE customer_id = ANY($2)
        AND (request_id = ANY($3) OR (event_id = $1 AND state IN ('WAITING', 'ADMITTED'))) IS TRUE"
);
const INSERT: &str = "INSERT INTO entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name,
        avatar_url, request_id, fingerprint, start_position)
    SELECT entry_id, $1, customer_id, $2 + place, 'WAITING', $3, $4, display_name, avatar_url, request_id, fingerprint,
        $11 + place
    FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::text[], $9::uuid[], $10::uuid[])
        WITH ORDINALITY AS new (entry_id, customer_id, display_name, avatar_url, request_id, fingerprint, place)";
const NEWEST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM entry WHERE customer_id = $2 AND (event_id = $1) IS TRUE ORDER BY seq DESC LIMIT 1"
);
const NEWEST_OF: &str = concat!(
    "SELECT DISTINCT ON (customer_id) ",
    columns!(),
    ", (SELECT revision FROM line WHERE event_id = $1) AS line_revision, clock_timestamp() AS now FROM entry
    WHERE customer_id = ANY($2) AND (event_id = $1) IS TRUE ORDER BY customer_id, seq DESC"
);
const BY_IDS: &str = concat!("SELECT ", columns!(), " FROM entry WHERE entry_id = ANY($1)");
// Ascending seqs get ascending fencing numbers.
const ADMIT: &str = concat!(
    "UPDATE entry SET state = 'ADMITTED', revision = $3, fencing_number = $4 + next.place, grant_time = $5,
        expire_time = $6
    FROM (SELECT first.id, row_number() OVER (ORDER BY first.place) AS place
        FROM (SELECT entry_id AS id, seq AS place FROM entry
            WHERE event_id = $1 AND state = 'WAITING' ORDER BY seq LIMIT $2) first
    ) next
    WHERE entry_id = next.id
    RETURNING ",
    columns!()
);
const END: &str = concat!(
    "UPDATE entry SET state = $2, expire_reason = $3, revision = $4, end_time = $5
    WHERE entry_id = ANY($1) AND state IN ('WAITING', 'ADMITTED') RETURNING ",
    columns!()
);
const COMPLETE: &str = concat!(
    "UPDATE entry SET state = 'COMPLETED', expire_reason = NULL, claim_id = $2, revision = $3, end_time = $4
    WHERE entry_id = $1 RETURNING ",
    columns!()
);
const TURNS_FROM: &str = concat!(
    "SELECT ",
    columns!(),
    ", clock_timestamp() AS now,
        EXISTS (SELECT FROM blocked_customer kept WHERE kept.event_id = $1 AND kept.customer_id = $2) AS is_blocked
    FROM entry
    WHERE customer_id = $2 AND (event_id = $1 AND fencing_number >= $3) IS TRUE ORDER BY fencing_number"
);
// As the one above for many at once. `OFFSET 0` keeps it one look at the customer's entries for each who asks: joined, the
// planner may read the whole table instead.
const TURNS_OF: &str = concat!(
    "SELECT asked.place, found.*, clock_timestamp() AS now,
        (SELECT true FROM blocked_customer kept WHERE kept.event_id = asked.event_id
            AND kept.customer_id = asked.customer_id LIMIT 1) IS NOT NULL AS is_blocked
    FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) WITH ORDINALITY AS asked (event_id, customer_id, number, place)
    CROSS JOIN LATERAL (SELECT ",
    columns!(),
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

/// An entry to be made.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its id.
    pub entry_id: EntryId,
    /// Whose.
    pub customer_id: CustomerId,
    /// What neighbors see as name.
    pub display_name: String,
    /// What neighbors see as picture.
    pub avatar_url: String,
    /// The request that makes it.
    pub request_id: RequestId,
    /// What the request said.
    pub fingerprint: Uuid,
}

/// An entry and the request that made it.
#[derive(Clone, Debug)]
pub struct MadeEntry {
    /// The entry as it is now.
    pub entry: Entry,
    /// The request.
    pub request_id: RequestId,
    /// What it said.
    pub fingerprint: Uuid,
}

/// An entry, and the moment in which it was so.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// The revision of its line then.
    pub revision: u64,
    /// The database's time then.
    pub now: Timestamp,
}

/// The open entries of these customers in the event.
pub async fn open_of(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[Uuid],
) -> Result<Vec<Entry>, Error> {
    all(transaction.query(OPEN_OF, &[&event_id.as_uuid(), &customers]).await?)
}

/// The open entries of these customers in the event, and the entries that these requests have made before, in any.
pub async fn known_of(
    transaction: &Transaction,
    event_id: EventId,
    customers: &[Uuid],
    requests: &[Uuid],
) -> Result<Vec<MadeEntry>, Error> {
    let rows = transaction.query(KNOWN_OF, &[&event_id.as_uuid(), &customers, &requests]).await?;
    rows.iter()
        .map(|row| {
            Ok(MadeEntry {
                entry: read(row)?,
                request_id: RequestId::from_uuid(uuid(row, "request_id")?),
                fingerprint: uuid(row, "fingerprint")?,
            })
        })
        .collect()
}

/// Puts entries at the end of `line`, as it was before them, in their order.
pub async fn insert(
    transaction: &Transaction,
    event_id: EventId,
    line: &Line,
    revision: u64,
    now: Timestamp,
    entries: &[NewEntry],
) -> Result<(), Error> {
    let ids: Vec<Uuid> = entries.iter().map(|entry| entry.entry_id.as_uuid()).collect();
    let customers: Vec<Uuid> = entries.iter().map(|entry| entry.customer_id.as_uuid()).collect();
    let names: Vec<&str> = entries.iter().map(|entry| entry.display_name.as_str()).collect();
    let avatars: Vec<&str> = entries.iter().map(|entry| entry.avatar_url.as_str()).collect();
    let requests: Vec<Uuid> = entries.iter().map(|entry| entry.request_id.as_uuid()).collect();
    let fingerprints: Vec<Uuid> = entries.iter().map(|entry| entry.fingerprint).collect();
    transaction
        .execute(
            INSERT,
            &[
                &event_id.as_uuid(),
                &sql_count(line.last_seq),
                &sql_count(revision),
                &sql_time(now),
                &ids,
                &customers,
                &names,
                &avatars,
                &requests,
                &fingerprints,
                &sql_count(line.waiting_count),
            ],
        )
        .await?;
    Ok(())
}

/// The customer's newest entry in the event: the open one, if there is one.
pub async fn newest(
    postgres: &Postgres,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<Option<Entry>, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let row = postgres.query_opt("newest entry", NEWEST, &[&event, &customer]).await?;
    row.as_ref().map(read).transpose()
}

/// The newest entry in the event of each of these customers who has one.
pub async fn newest_of(
    postgres: &Postgres,
    event_id: EventId,
    customers: &[CustomerId],
) -> Result<Vec<Found>, Error> {
    let customers: Vec<Uuid> = customers.iter().map(CustomerId::as_uuid).collect();
    let rows = postgres.query("newest entries", NEWEST_OF, &[&event_id.as_uuid(), &customers]).await?;
    let found = |row: &Row| {
        Ok(Found { entry: read(row)?, revision: count(row, "line_revision")?, now: time(row, "now")? })
    };
    rows.iter().map(found).collect()
}

/// The same, in a transaction.
pub async fn newest_in(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
) -> Result<Option<Entry>, Error> {
    let row = transaction.query_opt(NEWEST, &[&event_id.as_uuid(), &customer_id.as_uuid()]).await?;
    row.as_ref().map(read).transpose()
}

/// These entries.
pub async fn by_ids(postgres: &Postgres, entries: &[EntryId]) -> Result<Vec<Entry>, Error> {
    all(postgres.query("entries by id", BY_IDS, &[&uuids(entries)]).await?)
}

/// Gives the first `admitted` of the line their turns; they come back in order of their seqs.
pub async fn admit(
    transaction: &Transaction,
    event_id: EventId,
    admitted: u64,
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
                &sql_count(admitted),
                &sql_count(revision),
                &sql_count(last_fencing_number),
                &sql_time(now),
                &sql_time(expire_time),
            ],
        )
        .await?;
    let mut entries = all(rows)?;
    entries.sort_by_key(|entry| entry.seq);
    Ok(entries)
}

/// Ends those of the entries that are open; they come back as they are then.
pub async fn end(
    transaction: &Transaction,
    entries: &[EntryId],
    reason: ExpireReason,
    revision: u64,
    now: Timestamp,
) -> Result<Vec<Entry>, Error> {
    let (state, reason) = (reason.state().name(), reason.name());
    let rows = transaction
        .query(END, &[&uuids(entries), &state, &reason, &sql_count(revision), &sql_time(now)])
        .await?;
    all(rows)
}

/// Ends an entry with a purchase.
pub async fn complete(
    transaction: &Transaction,
    entry_id: EntryId,
    claim_id: ClaimId,
    revision: u64,
    now: Timestamp,
) -> Result<Entry, Error> {
    let row = transaction
        .query_one(
            COMPLETE,
            &[&entry_id.as_uuid(), &claim_id.as_uuid(), &sql_count(revision), &sql_time(now)],
        )
        .await?;
    read(&row)
}

/// What there is to know about each of these turns, in their order, and the database's time if there is anything.
pub async fn turns(postgres: &Postgres, turns: &[TurnName]) -> Result<Vec<(TurnCheck, Timestamp)>, Error> {
    let events: Vec<Uuid> = turns.iter().map(|turn| turn.event_id.as_uuid()).collect();
    let customers: Vec<Uuid> = turns.iter().map(|turn| turn.customer_id.as_uuid()).collect();
    let numbers: Vec<i64> = turns.iter().map(|turn| sql_count(turn.fencing_number)).collect();
    let rows = postgres.query("check turns", TURNS_OF, &[&events, &customers, &numbers]).await?;
    let mut found: BTreeMap<u64, Vec<Row>> = BTreeMap::new();
    for row in rows {
        found.entry(count(&row, "place")?).or_default().push(row);
    }
    let check = |(place, turn): (u64, &TurnName)| {
        let rows = found.remove(&place).unwrap_or_default();
        let now = rows.first().map(|row| time(row, "now")).transpose()?.unwrap_or(Timestamp::EPOCH);
        Ok((turn_check(turn.event_id, turn.fencing_number, rows)?, now))
    };
    (1..).zip(turns).map(check).collect()
}

/// What there is to know about a turn, in a transaction.
pub async fn turn_in(
    transaction: &Transaction,
    event_id: EventId,
    customer_id: CustomerId,
    fencing_number: u64,
) -> Result<TurnCheck, Error> {
    let (event, customer) = (event_id.as_uuid(), customer_id.as_uuid());
    let rows = transaction.query(TURNS_FROM, &[&event, &customer, &sql_count(fencing_number)]).await?;
    turn_check(event_id, fencing_number, rows)
}

/// Events in which a turn has run out.
pub async fn events_overdue(postgres: &Postgres) -> Result<Vec<EventId>, Error> {
    let rows = postgres.query("find overdue", OVERDUE, &[]).await?;
    rows.iter().map(|row| Ok(EventId::from_uuid(uuid(row, "event_id")?))).collect()
}

/// Entries of the event whose turn has run out.
pub async fn overdue(
    transaction: &Transaction,
    event_id: EventId,
    now: Timestamp,
    entries_max: u32,
) -> Result<Vec<EntryId>, Error> {
    let (event, limit) = (event_id.as_uuid(), i64::from(entries_max));
    ids(transaction.query(OVERDUE_OF, &[&event, &sql_time(now), &limit]).await?)
}

/// The first who wait.
pub async fn first_waiting(
    transaction: &Transaction,
    event_id: EventId,
    entries_max: u32,
) -> Result<Vec<EntryId>, Error> {
    ids(transaction.query(FIRST_WAITING, &[&event_id.as_uuid(), &i64::from(entries_max)]).await?)
}

/// Those of the entries that wait, and have done so since before `joined_until`.
pub async fn waiting_among(
    transaction: &Transaction,
    event_id: EventId,
    entries: &[EntryId],
    joined_until: Timestamp,
) -> Result<Vec<EntryId>, Error> {
    let (event, joined_until) = (event_id.as_uuid(), sql_time(joined_until));
    ids(transaction.query(WAITING_AMONG, &[&event, &uuids(entries), &joined_until]).await?)
}

/// A page of who waits, with seqs above `after` up to `upto`, in order.
pub async fn page(
    postgres: &Postgres,
    event_id: EventId,
    after: u64,
    upto: u64,
    entries_max: u32,
) -> Result<Vec<(EntryId, u64)>, Error> {
    let (event, limit) = (event_id.as_uuid(), i64::from(entries_max));
    let rows = postgres
        .query("page of waiting", PAGE, &[&event, &sql_count(after), &sql_count(upto), &limit])
        .await?;
    rows.iter().map(|row| Ok((EntryId::from_uuid(uuid(row, "entry_id")?), count(row, "seq")?))).collect()
}

/// The positions of those of `seqs` that wait, counted in the table: right, and as slow as the line is long.
pub async fn positions(
    postgres: &Postgres,
    event_id: EventId,
    seqs: &[u64],
) -> Result<Vec<(u64, u64)>, Error> {
    let seqs: Vec<i64> = seqs.iter().map(|seq| sql_count(*seq)).collect();
    let rows = postgres.query("count positions", POSITIONS, &[&event_id.as_uuid(), &seqs]).await?;
    rows.iter().map(|row| Ok((count(row, "seq")?, count(row, "position")?))).collect()
}

fn turn_check(event_id: EventId, fencing_number: u64, rows: Vec<Row>) -> Result<TurnCheck, Error> {
    let is_blocked = rows.first().map(|row| column(row, "is_blocked")).transpose()?.unwrap_or(false);
    let entries = all(rows)?;
    let fencing = |entry: &Entry| entry.turn.map(|turn| turn.fencing_number);
    let newest_fencing_number = entries.last().and_then(fencing);
    let entry = entries.into_iter().find(|entry| fencing(entry) == Some(fencing_number));
    Ok(TurnCheck { event_id, fencing_number, entry, newest_fencing_number, is_blocked })
}

fn uuids(entries: &[EntryId]) -> Vec<Uuid> {
    entries.iter().map(EntryId::as_uuid).collect()
}

fn ids(rows: Vec<Row>) -> Result<Vec<EntryId>, Error> {
    rows.iter().map(|row| Ok(EntryId::from_uuid(uuid(row, "entry_id")?))).collect()
}

fn all(rows: Vec<Row>) -> Result<Vec<Entry>, Error> {
    rows.iter().map(read).collect()
}

fn read(row: &Row) -> Result<Entry, Error> {
    Ok(Entry {
        entry_id: EntryId::from_uuid(uuid(row, "entry_id")?),
        event_id: EventId::from_uuid(uuid(row, "event_id")?),
        customer_id: CustomerId::from_uuid(uuid(row, "customer_id")?),
        seq: count(row, "seq")?,
        state: named(row, "state", EntryState::from_name)?,
        join_time: time(row, "join_time")?,
        display_name: column(row, "display_name")?,
        avatar_url: column(row, "avatar_url")?,
        turn: read_turn(row)?,
        end_time: optional_time(row, "end_time")?,
        expire_reason: optional_named(row, "expire_reason", ExpireReason::from_name)?,
        claim_id: column::<Option<Uuid>>(row, "claim_id")?.map(ClaimId::from_uuid),
    })
}

fn read_turn(row: &Row) -> Result<Option<Turn>, Error> {
    if column::<Option<i64>>(row, "fencing_number")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Turn {
        fencing_number: count(row, "fencing_number")?,
        grant_time: time(row, "grant_time")?,
        expire_time: time(row, "expire_time")?,
    }))
}
