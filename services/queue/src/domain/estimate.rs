//! How long somebody will probably wait.

use std::time::Duration;

use super::{policy::Policy, queue::QueueState};

/// A range of waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Shortest likely wait.
    pub wait_min: Duration,
    /// Longest likely wait.
    pub wait_max: Duration,
}

/// What the rate allows at best, and what the open turns allow when each takes as long as lately. None when nobody is
/// being admitted.
#[must_use]
pub fn estimate(
    position: u64,
    state: QueueState,
    policy: &Policy,
    service_time: Option<Duration>,
) -> Option<Estimate> {
    if state != QueueState::Open || policy.admissions_per_minute == 0 || policy.open_turns_max == 0 {
        return None;
    }
    let by_rate = share(Duration::from_secs(60), position, policy.admissions_per_minute);
    let by_turns = service_time.map_or(by_rate, |span| share(span, position, policy.open_turns_max));
    let wait_min = by_rate;
    // A quarter on top: others leave, and others take longer.
    let longest = by_rate.max(by_turns);
    let wait_max = longest.saturating_add(longest / 4).max(Duration::from_secs(1));
    Some(Estimate { wait_min, wait_max })
}

/// `span` × `position` ÷ `per_span`, in whole seconds.
fn share(span: Duration, position: u64, per_span: u32) -> Duration {
    let millis = span.as_millis().saturating_mul(u128::from(position)) / u128::from(per_span.max(1));
    Duration::from_secs(u64::try_from(millis / 1_000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy(rate: u32, turns: u32) -> Policy {
        Policy {
            admissions_per_minute: rate,
            open_turns_max: turns,
            turn_duration: Duration::from_secs(1_200),
            idle_timeout: Duration::from_secs(60),
            waiting_max: 10,
        }
    }

    #[test]
    fn at_sixty_a_minute_the_hundredth_waits_a_hundred_seconds_or_a_little_more() {
        let range = estimate(100, QueueState::Open, &policy(60, 1_000), None).unwrap();
        assert_eq!(
            range,
            Estimate { wait_min: Duration::from_secs(100), wait_max: Duration::from_secs(125) }
        );
    }

    #[test]
    fn nobody_is_told_a_time_while_nobody_is_admitted() {
        assert_eq!(estimate(1, QueueState::Paused, &policy(60, 1), None), None);
        assert_eq!(estimate(1, QueueState::Open, &policy(0, 1), None), None);
    }

    proptest! {
        #[test]
        fn a_range_is_a_range_and_grows_with_the_position(
            position in 1_u64..10_000_000, rate in 1_u32..1_000_000, turns in 1_u32..1_000_000, service in 0_u64..7_200,
        ) {
            let at = |position| {
                let service = Some(Duration::from_secs(service));
                estimate(position, QueueState::Open, &policy(rate, turns), service).unwrap()
            };
            let (here, behind) = (at(position), at(position + 1));
            prop_assert!(here.wait_min <= here.wait_max);
            prop_assert!(here.wait_min <= behind.wait_min && here.wait_max <= behind.wait_max);
        }
    }
}
