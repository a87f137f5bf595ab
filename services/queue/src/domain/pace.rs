//! How often somebody is told, or should ask, where they stand.

use std::time::Duration;

/// Up to here every step counts.
const NEAR: u64 = 100;

/// Far from the front, a change counts when it is one part of this many.
const FAR_SHARE: u64 = 100;

/// Whether a move from one position to another is worth a message: every step near the front, about 1 % when far.
#[must_use]
pub fn is_noticeable(told: u64, now: u64) -> bool {
    let difference = told.abs_diff(now);
    if now <= NEAR { difference > 0 } else { difference >= (told / FAR_SHARE).max(1) }
}

/// When to ask again: soon near the front, rarely far from it; often enough that the place is never lost for silence.
#[must_use]
pub fn next_poll_after(position: u64, idle_timeout: Duration) -> Duration {
    let seconds = match position {
        0..=10 => 2,
        11..=100 => 5,
        101..=1_000 => 10,
        1_001..=10_000 => 20,
        _ => 30,
    };
    Duration::from_secs(seconds).min(idle_timeout / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_the_front_every_step_counts_and_far_away_one_in_a_hundred() {
        assert!(is_noticeable(100, 99));
        assert!(is_noticeable(2, 1));
        assert!(!is_noticeable(5, 5));
        assert!(!is_noticeable(10_000, 9_901));
        assert!(is_noticeable(10_000, 9_900));
        assert!(is_noticeable(10_000, 100));
    }

    #[test]
    fn who_asks_when_told_to_is_always_seen_in_time() {
        for position in [0, 1, 50, 5_000, 10_000_000] {
            let idle = Duration::from_secs(60);
            assert!(next_poll_after(position, idle) * 3 <= idle);
        }
    }
}
