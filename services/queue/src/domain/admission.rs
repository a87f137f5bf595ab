//! The number of turns to grant now.

use super::{line::Line, policy::Policy, queue::QueueState};

/// Returns how many waiting customers to admit: as many as the rate, the cap on open turns, the free units and `batch_max`
/// allow, and 0 unless the queue is OPEN. `line.bucket` must be filled up to now.
pub(crate) fn count(state: QueueState, policy: &Policy, line: &Line, free_units: u64, batch_max: u64) -> u64 {
    match state {
        QueueState::Open => {}
        QueueState::Scheduled | QueueState::Paused | QueueState::Closed => return 0,
    }
    // A rate of 0 stops admission even if the bucket still holds admissions from a higher rate.
    if policy.admissions_per_minute == 0 {
        return 0;
    }
    let slots = u64::from(policy.open_turns_max).saturating_sub(line.open_turn_count);
    line.waiting_count.min(line.bucket.whole()).min(slots).min(free_units).min(batch_max)
}

#[cfg(test)]
mod tests {
    use onsale_types::Timestamp;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::{bucket::Bucket, line::tests::empty, policy::tests::some};

    proptest! {
        #[test]
        fn admission_stays_within_every_limit(
            waiting_count in 0_u64..5_000, open_turn_count in 0_u64..2_000, open_turns_max in 0_u32..2_000,
            rate in 0_u32..100_000, free in 0_u64..3_000, seconds in 0_i64..100,
        ) {
            let policy = Policy { admissions_per_minute: rate, open_turns_max, ..some() };
            let bucket = Bucket { level: 0, time: Timestamp::EPOCH }.filled(rate, Timestamp::from_secs(seconds));
            let line = Line { last_seq: 10_000, waiting_count, open_turn_count, bucket, ..empty() };
            let admitted = count(QueueState::Open, &policy, &line, free, 500);
            prop_assert!(admitted <= waiting_count && admitted <= free && admitted <= 500);
            prop_assert!(admitted <= bucket.whole());
            prop_assert!(admitted == 0 || open_turn_count + admitted <= u64::from(open_turns_max));
            for state in [QueueState::Scheduled, QueueState::Paused, QueueState::Closed] {
                prop_assert_eq!(count(state, &policy, &line, free, 500), 0);
            }
        }
    }
}
