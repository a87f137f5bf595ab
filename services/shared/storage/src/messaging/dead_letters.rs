//! Lists, retries and discards events that could not be handled. All calls are safe to repeat.

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

/// Maximum number of letters on one page.
const PAGE_MAX: u16 = 500;

/// Dead letters of one group.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    postgres: Postgres,
    group: String,
}

/// Event that could not be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Id of the event.
    pub event_id: Uuid,
    /// Topic as the contract names it.
    pub topic: String,
    /// Ordering key of the event.
    pub key: String,
    /// Position in the topic.
    pub position: i64,
    /// Text of the last error with its causes, at most 2,000 characters.
    pub error: String,
    /// Number of attempts, including deliveries to consumers that crashed.
    pub attempts: u32,
    /// Time at which the event became a dead letter.
    pub dead_time: Timestamp,
    /// True while a requested retry is pending.
    pub is_retrying: bool,
}

/// One page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LettersPage {
    /// Letters in the order of their event ids.
    pub letters: Vec<DeadLetter>,
    /// Last event id of this page, to pass as `after`; `None` on the last page.
    pub next: Option<Uuid>,
}

impl DeadLetters {
    /// Creates a view of `group`'s dead letters in the schema of `postgres`.
    #[must_use]
    pub fn new(postgres: Postgres, group: impl Into<String>) -> Self {
        Self { postgres, group: group.into() }
    }

    /// Returns at most `count` letters (1 to 500) after the event `after`.
    pub async fn list(&self, after: Option<Uuid>, count: u16) -> Result<LettersPage, Error> {
        let count = count.clamp(1, PAGE_MAX);
        // One extra row shows whether there is a next page.
        let limit = i64::from(count) + 1;
        let rows = self.postgres.query("list dead letters", LIST, &[&self.group, &after, &limit]).await?;
        let mut letters = rows.iter().map(letter).collect::<Result<Vec<_>, _>>()?;
        let has_more = letters.len() > usize::from(count);
        letters.truncate(usize::from(count));
        let next = letters.last().filter(|_| has_more).map(|letter| letter.event_id);
        Ok(LettersPage { letters, next })
    }

    /// Requests a retry, which a consumer of the group runs within `letters_every`. Returns false if there is no such
    /// letter, for example because it was handled meanwhile.
    pub async fn retry(&self, event_id: Uuid) -> Result<bool, Error> {
        Ok(self.postgres.execute("retry dead letter", RETRY, &[&self.group, &event_id]).await? > 0)
    }

    /// Deletes a letter permanently. Returns false if there was none.
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
