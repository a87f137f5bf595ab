//! Rules for the frequency of position messages to watchers, and of polls by other customers.

use std::time::Duration;

/// A watcher gets a new position once it has moved by this part (1/100) of the last one sent, and by at least 1. So every step
/// is sent from position 199 on. `bench/src/watch.rs` relies on this share.
const FAR_SHARE: u64 = 100;

/// Polls per second per pod above which the time between polls is stretched.
const EASY_POLLS_PER_SECOND: u64 = 1_000;

/// Largest factor by which the time between polls is stretched.
const STRETCH_MAX: u64 = 10;

/// Returns the highest position below `sent` that is worth a message: the next one near the front, about 1 % lower far from it.
pub(crate) fn next_notice(sent: u64) -> u64 {
    sent.saturating_sub((sent / FAR_SHARE).max(1))
}

/// Returns true if a move from position `sent` to `now` is worth a message. A move to a higher position always is, because it
/// corrects a wrong one.
pub(crate) fn is_noticeable(sent: u64, now: u64) -> bool {
    now <= next_notice(sent) || now > sent
}

/// Returns the time to wait before the next poll: 2 s near the front to 30 s far from it, up to ten times longer under load,
/// and at most a third of the idle timeout, so that a customer who polls as told never counts as idle.
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
    fn every_step_counts_up_to_199_and_one_percent_beyond() {
        assert!(is_noticeable(199, 198));
        assert!(!is_noticeable(200, 199));
        assert!(is_noticeable(200, 198));
        assert!(is_noticeable(100, 99));
        assert!(is_noticeable(2, 1));
        assert!(!is_noticeable(5, 5));
        assert!(!is_noticeable(10_000, 9_901));
        assert!(is_noticeable(10_000, 9_900));
        assert!(is_noticeable(10_000, 100));
        assert!(is_noticeable(10, 11));
    }

    #[test]
    fn customer_who_polls_as_told_is_never_idle() {
        for position in [0, 1, 50, 5_000, 10_000_000] {
            for polls in [0, 500, 1_000_000] {
                let idle = Duration::from_secs(60);
                assert!(next_poll_after(position, idle, polls) * 3 <= idle);
            }
        }
    }

    proptest! {
        #[test]
        fn poll_wait_grows_with_load_and_position(
            position in 0_u64..1_000_000, polls in 0_u64..1_000_000,
        ) {
            let idle = Duration::from_secs(1_800);
            let now = next_poll_after(position, idle, polls);
            prop_assert!(now <= next_poll_after(position, idle, polls + 1_000));
            prop_assert!(now <= next_poll_after(position + 1, idle, polls));
            prop_assert!(now >= Duration::from_secs(2));
        }

        #[test]
        fn steady_move_to_the_front_takes_at_most_1100_messages(start in 1_u64..1_000_000) {
            let (mut sent, mut messages) = (start, 0);
            for now in (1..=start).rev() {
                if is_noticeable(sent, now) {
                    (sent, messages) = (now, messages + 1);
                }
            }
            prop_assert_eq!(sent, 1);
            prop_assert!(messages <= 1_100);
        }
    }
}
