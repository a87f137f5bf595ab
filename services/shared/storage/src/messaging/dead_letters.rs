//! Events that could not be handled: to look at, to try again, to throw away. All of it may be asked for twice.

use onsale_types::Timestamp;
use uuid::Uuid;

use crate::postgres::row::RowExt as _;
use crate::postgres::{Error, Postgres, Row};

const LIST: &str = "SELECT event_id, topic, key, position, error, attempts, dead_at,
        retry_requested_at IS NOT NULL AS is_retrying
    FROM dead_letter WHERE consumer = $1 AND ($2::uuid IS NULL OR event_id > $2)
    ORDER BY event_id LIMIT $3";
const RETRY: &str = "UPDATE dead_letter SET retry_requested_at = coalesce(retry_requested_at, now())
    WHERE consumer = $1 AND event_id = $2";
const DISCARD: &str = "DELETE FROM dead_letter WHERE consumer = $1 AND event_id = $2";

/// The most letters on one page.
const PAGE_MAX: u16 = 500;

/// The dead letters of one group.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    postgres: Postgres,
    group: String,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The event.
    pub event_id: Uuid,
    /// Its topic.
    pub topic: String,
    /// What it is about.
    pub key: String,
    /// Its place in the topic.
    pub position: i64,
    /// The last error, with its causes.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub dead_time: Timestamp,
    /// Whether another try is asked for and not done yet.
    pub is_retrying: bool,
}

/// Some of them, and where to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LettersPage {
    /// In the order of their events.
    pub letters: Vec<DeadLetter>,
    /// For the next page; none on the last.
    pub next: Option<Uuid>,
}

impl DeadLetters {
    /// The dead letters of `group` in `postgres`' schema.
    #[must_use]
    pub fn new(postgres: Postgres, group: impl Into<String>) -> Self {
        Self { postgres, group: group.into() }
    }

    /// A page of at most `count` letters after the event `after`.
    pub async fn list(&self, after: Option<Uuid>, count: u16) -> Result<LettersPage, Error> {
        let count = count.clamp(1, PAGE_MAX);
        // One more than asked for tells whether there is a next page.
        let limit = i64::from(count) + 1;
        let rows = self.postgres.query("list dead letters", LIST, &[&self.group, &after, &limit]).await?;
        let mut letters = rows.iter().map(letter).collect::<Result<Vec<_>, _>>()?;
        let has_more = letters.len() > usize::from(count);
        letters.truncate(usize::from(count));
        let next = letters.last().filter(|_| has_more).map(|letter| letter.event_id);
        Ok(LettersPage { letters, next })
    }

    /// Asks for another try, which a consumer of the group makes soon. Answers whether there is such a letter: one that
    /// was handled meanwhile is gone.
    pub async fn retry(&self, event_id: Uuid) -> Result<bool, Error> {
        Ok(self.postgres.execute("retry dead letter", RETRY, &[&self.group, &event_id]).await? > 0)
    }

    /// Throws a letter away for good. Answers whether there was one.
    pub async fn discard(&self, event_id: Uuid) -> Result<bool, Error> {
        Ok(self.postgres.execute("discard dead letter", DISCARD, &[&self.group, &event_id]).await? > 0)
    }
}

fn letter(row: &Row) -> Result<DeadLetter, Error> {
    Ok(DeadLetter {
        event_id: row.read("event_id")?,
        topic: row.read("topic")?,
        key: row.read("key")?,
        position: row.read("position")?,
        error: row.read("error")?,
        attempts: row.read_count("attempts")?,
        dead_time: row.read_time("dead_at")?,
        is_retrying: row.read("is_retrying")?,
    })
}
