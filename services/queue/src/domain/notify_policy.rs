//! How often somebody is told, or should ask, where they stand.

use std::time::Duration;

/// Far from the front, a change counts when it is one part of this many.
const FAR_SHARE: u64 = 100;

/// Polls per second that a pod answers with ease; beyond, everybody is asked to come back later.
const EASY_POLLS_PER_SECOND: u64 = 1_000;

/// Nobody is asked to wait more than this many times longer than on a quiet day.
const STRETCH_MAX: u64 = 10;

/// The position at which somebody who was told `told` is told again: every step near the front, about 1 % when far.
pub(crate) fn next_notice(told: u64) -> u64 {
    told.saturating_sub((told / FAR_SHARE).max(1))
}

/// Whether a move from one position to another is worth a message. A worse one always is: it corrects a mistake.
pub(crate) fn is_noticeable(told: u64, now: u64) -> bool {
    now <= next_notice(told) || now > told
}

/// When to ask again: soon near the front, rarely far from it, later when many ask; often enough that the place is never
/// lost for silence.
pub(crate) fn next_poll_after(position: u64, idle_timeout: Duration, polls_per_second: u64) -> Duration {
    let seconds: u64 = match position {
        0..=10 => 2,
        11..=100 => 5,
        101..=1_000 => 10,
        1_001..=10_000 => 20,
        _ => 30,
    };
    let stretch = polls_per_second.div_ceil(EASY_POLLS_PER_SECOND).clamp(1, STRETCH_MAX);
    Duration::from_secs(seconds.saturating_mul(stretch)).min(idle_timeout / 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_the_front_every_step_counts_and_far_away_one_in_a_hundred() {
        assert!(is_noticeable(100, 99));
        assert!(is_noticeable(2, 1));
        assert!(!is_noticeable(5, 5));
        assert!(!is_noticeable(10_000, 9_901));
        assert!(is_noticeable(10_000, 9_900));
        assert!(is_noticeable(10_000, 100));
        assert!(is_noticeable(10, 11));
    }

    #[test]
    fn who_asks_when_told_to_is_always_seen_in_time() {
        for position in [0, 1, 50, 5_000, 10_000_000] {
            for polls in [0, 500, 1_000_000] {
                let idle = Duration::from_secs(60);
                assert!(next_poll_after(position, idle, polls) * 3 <= idle);
            }
        }
    }

    proptest! {
        #[test]
        fn many_who_ask_are_asked_to_come_back_later_and_the_front_is_always_soonest(
            position in 0_u64..1_000_000, polls in 0_u64..1_000_000,
        ) {
            let idle = Duration::from_secs(1_800);
            let now = next_poll_after(position, idle, polls);
            prop_assert!(now <= next_poll_after(position, idle, polls + 1_000));
            prop_assert!(now <= next_poll_after(position + 1, idle, polls));
            prop_assert!(now >= Duration::from_secs(2));
        }

        #[test]
        fn a_line_that_only_moves_up_is_told_in_few_messages(start in 1_u64..1_000_000) {
            let (mut told, mut messages) = (start, 0);
            for now in (1..=start).rev() {
                if is_noticeable(told, now) {
                    (told, messages) = (now, messages + 1);
                }
            }
            prop_assert_eq!(told, 1);
            prop_assert!(messages <= 1_100);
        }
    }
}
