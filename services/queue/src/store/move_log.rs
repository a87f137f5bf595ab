//! The move log: one record per revision of a line, in a capped Redis stream. Who misses one reads Postgres instead, so
//! nothing here may be the only copy of anything. Records are appended by the script that moves the line in Redis.

use onsale_storage::redis::{Command, Error, Redis};
use onsale_types::EventId;

use super::{away::quick, keys::Keys};
use crate::domain::line_change::LineChange;

/// Records kept, about: who is further behind reads Postgres.
pub(crate) const RECORDS_MAX: u64 = 4_096;

/// Records read in one call.
const READ_MAX: u64 = 512;

/// The id before all others.
pub(crate) const START: &str = "0-0";

/// A reader's place in the log, and its records from there.
pub(crate) type Records = Vec<(String, Option<LineChange>)>;

/// The log of every line.
#[derive(Clone, Debug)]
pub(crate) struct MoveLog {
    redis: Redis,
    keys: Keys,
}

impl MoveLog {
    /// The logs in `redis` under `keys`.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys }
    }

    /// The id of the newest record; [`START`] when there is none.
    pub(crate) async fn last_id(&self, event_id: EventId) -> Result<String, Error> {
        let command =
            Command::new("XREVRANGE").key(&self.keys.log(event_id)?).arg("+").arg("-").arg("COUNT").arg(1);
        let records: Vec<(String, Vec<String>)> = quick(&self.redis, command.idempotent()).await?;
        Ok(records.into_iter().next().map_or_else(|| START.to_owned(), |(id, _)| id))
    }

    /// The records after `id`, the oldest first, at most a few hundred. One that cannot be understood is none.
    pub(crate) async fn after(&self, event_id: EventId, id: &str) -> Result<Records, Error> {
        let command = Command::new("XRANGE")
            .key(&self.keys.log(event_id)?)
            .arg(format!("({id}"))
            .arg("+")
            .arg("COUNT")
            .arg(READ_MAX);
        let records: Vec<(String, Vec<String>)> = quick(&self.redis, command.idempotent()).await?;
        Ok(records.into_iter().map(|(id, fields)| (id, read(&fields))).collect())
    }
}

/// A record's field and what it says: the numbers in order, then who went, whose turn ended.
pub(crate) fn write(step: &LineChange) -> [String; 3] {
    let numbers = [
        step.revision,
        step.last_seq,
        step.last_admitted_seq,
        step.waiting_count,
        step.admitted_count,
        u64::from(step.is_controlled),
    ];
    [list(&numbers), list(&step.gone), list(&step.ended)]
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
        fn a_record_reads_as_it_was_written(
            numbers in any::<[u64; 5]>(), gone in proptest::collection::vec(any::<u64>(), 0..20),
            ended in proptest::collection::vec(any::<u64>(), 0..20), is_controlled: bool,
        ) {
            let [revision, last_seq, last_admitted_seq, waiting_count, admitted_count] = numbers;
            let step = LineChange {
                revision, last_seq, last_admitted_seq, waiting_count, admitted_count, gone, ended, is_controlled,
            };
            let [numbers, gone, ended] = write(&step);
            let fields = ["n".to_owned(), numbers, "g".to_owned(), gone, "e".to_owned(), ended];
            prop_assert_eq!(read(&fields), Some(step));
        }

        #[test]
        fn what_nobody_of_us_wrote_is_no_step(fields in proptest::collection::vec(".*", 0..8)) {
            let is_ours = fields.len() == 6 && parse(&fields[1]).is_some_and(|numbers| numbers.len() == 6);
            prop_assert!(is_ours || read(&fields).is_none());
        }
    }
}
