//! The estimated waiting time at a position.

use std::time::Duration;

use super::{
    policy::{Policy, QueueMode},
    queue::QueueState,
};

/// Shortest and longest likely waiting time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) wait_min: Duration,
    pub(crate) wait_max: Duration,
}

/// Estimates the wait at `position`. In a TRACKED queue the shortest wait follows from the admission rate, and the longest
/// from the cap on open turns if each takes `service_time`; in a WINDOWED queue both follow from its slides. `None` while
/// nobody is admitted.
pub(crate) fn estimate(
    position: u64,
    state: QueueState,
    policy: &Policy,
    service_time: Option<Duration>,
) -> Option<Estimate> {
    if state != QueueState::Open || policy.admissions_per_minute == 0 {
        return None;
    }
    let by_rate = share(Duration::from_secs(60), position, policy.admissions_per_minute);
    let (wait_min, longest) = match policy.mode {
        QueueMode::Tracked if policy.open_turns_max == 0 => return None,
        QueueMode::Tracked => {
            let by_turns = service_time.map_or(by_rate, |span| share(span, position, policy.open_turns_max));
            (by_rate, by_rate.max(by_turns))
        }
        // The next slide happens between now and one interval from now.
        QueueMode::Windowed => {
            let slides = position.div_ceil(u64::from(policy.window_size).max(1));
            let slides = u32::try_from(slides).unwrap_or(u32::MAX);
            let by_slides = |slides| policy.slide_interval.saturating_mul(slides);
            (by_rate.max(by_slides(slides.saturating_sub(1))), by_rate.max(by_slides(slides)))
        }
    };
    // A quarter is added because some turns take longer than the average.
    let wait_max = longest.saturating_add(longest / 4).max(Duration::from_secs(1));
    Some(Estimate { wait_min, wait_max })
}

/// Returns `span` × `position` ÷ `per_span` in whole seconds.
fn share(span: Duration, position: u64, per_span: u32) -> Duration {
    let millis = span.as_millis().saturating_mul(u128::from(position)) / u128::from(per_span.max(1));
    Duration::from_secs(u64::try_from(millis / 1_000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::policy::tests::some;

    fn policy(rate: u32, turns: u32) -> Policy {
        Policy { admissions_per_minute: rate, open_turns_max: turns, ..some() }
    }

    #[test]
    fn hundredth_waits_100_to_125_seconds_at_60_per_minute() {
        let range = estimate(100, QueueState::Open, &policy(60, 1_000), None).unwrap();
        assert_eq!(
            range,
            Estimate { wait_min: Duration::from_secs(100), wait_max: Duration::from_secs(125) }
        );
    }

    #[test]
    fn windowed_estimate_follows_slides_bounded_by_the_rate() {
        // With windows of ten and a slide every ten seconds, the 25th is admitted by the third slide.
        let fast = Policy { mode: QueueMode::Windowed, ..policy(60_000, 0) };
        let range = |policy: &Policy| estimate(25, QueueState::Open, policy, None).unwrap();
        let seconds =
            |min, max| Estimate { wait_min: Duration::from_secs(min), wait_max: Duration::from_millis(max) };
        assert_eq!(range(&fast), seconds(20, 37_500));
        assert_eq!(range(&Policy { admissions_per_minute: 6, ..fast }), seconds(250, 312_500));
    }

    #[test]
    fn no_estimate_while_nobody_is_admitted() {
        assert_eq!(estimate(1, QueueState::Paused, &policy(60, 1), None), None);
        assert_eq!(estimate(1, QueueState::Open, &policy(0, 1), None), None);
    }

    proptest! {
        #[test]
        fn estimate_is_ordered_and_grows_with_the_position(
            position in 1_u64..10_000_000, rate in 1_u32..1_000_000, turns in 1_u32..1_000_000, service in 0_u64..7_200,
            is_windowed in any::<bool>(),
        ) {
            let mode = if is_windowed { QueueMode::Windowed } else { QueueMode::Tracked };
            let policy = Policy { mode, ..policy(rate, turns) };
            let at = |position| {
                let service = Some(Duration::from_secs(service));
                estimate(position, QueueState::Open, &policy, service).unwrap()
            };
            let (here, behind) = (at(position), at(position + 1));
            prop_assert!(here.wait_min <= here.wait_max);
            prop_assert!(here.wait_min <= behind.wait_min && here.wait_max <= behind.wait_max);
        }

        #[test]
        fn estimate_never_grows_while_only_the_line_moves(
            start in 1_u64..1_000_000, steps in proptest::collection::vec(0_u64..5_000, 1..50),
            rate in 1_u32..1_000_000, turns in 1_u32..1_000_000, service in proptest::option::of(0_u64..7_200_000),
        ) {
            let (policy, service) = (policy(rate, turns), service.map(Duration::from_millis));
            let mut position = start;
            let mut told = estimate(position, QueueState::Open, &policy, service).unwrap();
            for step in steps {
                position = position.saturating_sub(step).max(1);
                let now = estimate(position, QueueState::Open, &policy, service).unwrap();
                prop_assert!(now.wait_min <= told.wait_min && now.wait_max <= told.wait_max);
                told = now;
            }
        }
    }
}
