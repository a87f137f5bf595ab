//! The move log: a capped Redis stream with one record per revision of a line. A reader that misses a record reads Postgres
//! instead. The script `move.lua` appends the records.

use onsale_storage::redis::{Command, Error, Redis};
use onsale_types::EventId;

use super::{breaker::with_timeout, keys::Keys};
use crate::domain::line_change::LineChange;

/// Approximate number of records kept.
pub(crate) const RECORDS_MAX: u64 = 4_096;

/// Largest number of records read by one call.
const READ_MAX: u64 = 512;

/// The id before the first record.
pub(crate) const START: &str = "0-0";

/// Records with their ids. `None` stands for a record in an unknown form.
pub(crate) type Records = Vec<(String, Option<LineChange>)>;

/// The logs of all lines.
#[derive(Clone, Debug)]
pub(crate) struct MoveLog {
    redis: Redis,
    keys: Keys,
}

impl MoveLog {
    /// Returns the logs in `redis` under `keys`.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys }
    }

    /// Returns the id of the newest record, or [`START`] if there is none.
    pub(crate) async fn last_id(&self, event_id: EventId) -> Result<String, Error> {
        let command =
            Command::new("XREVRANGE").key(&self.keys.log(event_id)?).arg("+").arg("-").arg("COUNT").arg(1);
        let records: Vec<(String, Vec<String>)> = with_timeout(&self.redis, command.idempotent()).await?;
        Ok(records.into_iter().next().map_or_else(|| START.to_owned(), |(id, _)| id))
    }

    /// Returns at most 512 records after `id`, the oldest first.
    pub(crate) async fn after(&self, event_id: EventId, id: &str) -> Result<Records, Error> {
        let command = Command::new("XRANGE")
            .key(&self.keys.log(event_id)?)
            .arg(format!("({id}"))
            .arg("+")
            .arg("COUNT")
            .arg(READ_MAX);
        let records: Vec<(String, Vec<String>)> = with_timeout(&self.redis, command.idempotent()).await?;
        Ok(records.into_iter().map(|(id, fields)| (id, read(&fields))).collect())
    }
}

/// Encodes the three fields of a record: the counters, the numbers that left the line, and the numbers whose turn ended.
pub(crate) fn write(change: &LineChange) -> [String; 3] {
    let numbers = [
        change.revision,
        change.last_seq,
        change.last_admitted_seq,
        change.waiting_count,
        change.admitted_count,
        u64::from(change.is_controlled),
    ];
    [list(&numbers), list(&change.gone), list(&change.ended)]
}

fn read(fields: &[String]) -> Option<LineChange> {
    let [_, numbers, _, gone, _, ended] = fields else { return None };
    let numbers = parse(numbers)?;
    let [revision, last_seq, last_admitted_seq, waiting_count, admitted_count, is_controlled] =
        numbers.try_into().ok()?;
    Some(LineChange {
        revision,
        last_seq,
        last_admitted_seq,
        waiting_count,
        admitted_count,
        gone: parse(gone)?,
        ended: parse(ended)?,
        is_controlled: is_controlled != 0,
    })
}

fn list(numbers: &[u64]) -> String {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    texts.join(",")
}

fn parse(text: &str) -> Option<Vec<u64>> {
    text.split(',').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn record_is_parsed_as_it_was_written(
            numbers in any::<[u64; 5]>(), gone in proptest::collection::vec(any::<u64>(), 0..20),
            ended in proptest::collection::vec(any::<u64>(), 0..20), is_controlled: bool,
        ) {
            let [revision, last_seq, last_admitted_seq, waiting_count, admitted_count] = numbers;
            let change = LineChange {
                revision, last_seq, last_admitted_seq, waiting_count, admitted_count, gone, ended, is_controlled,
            };
            let [numbers, gone, ended] = write(&change);
            let fields = ["n".to_owned(), numbers, "g".to_owned(), gone, "e".to_owned(), ended];
            prop_assert_eq!(read(&fields), Some(change));
        }

        #[test]
        fn foreign_record_is_not_parsed(fields in proptest::collection::vec(".*", 0..8)) {
            let is_ours = fields.len() == 6 && parse(&fields[1]).is_some_and(|numbers| numbers.len() == 6);
            prop_assert!(is_ours || read(&fields).is_none());
        }
    }
}
