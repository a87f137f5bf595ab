//! How long a claim lasts: with its turn or its window, and once a little longer for a payment in progress.

use std::time::Duration;

use onsale_types::Timestamp;

/// From when to when a claim lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// When it was made.
    pub create_time: Timestamp,
    /// When it is released unless it is paid before.
    pub expire_time: Timestamp,
    /// When a payment in progress extended it. None: none did.
    pub extend_time: Option<Timestamp>,
}

impl Lifetime {
    /// Of a claim made at `now`: until its turn ends, if it has one, or until its window does, whichever comes first. None:
    /// the turn is over.
    #[must_use]
    pub fn begin(now: Timestamp, turn_end: Option<Timestamp>, window: Duration) -> Option<Self> {
        let ends = [now.checked_add(window), turn_end];
        let expire_time = ends.into_iter().flatten().min()?;
        (expire_time > now).then_some(Self { create_time: now, expire_time, extend_time: None })
    }

    /// Longer, because a payment is in progress at `now`: `extension` from now, and at most that much after the window. None:
    /// it was extended before.
    #[must_use]
    pub fn extend(self, now: Timestamp, window: Duration, extension: Duration) -> Option<Self> {
        if self.extend_time.is_some() {
            return None;
        }
        let latest = self.create_time.checked_add(window.saturating_add(extension))?;
        let end = now.checked_add(extension)?.min(latest).max(self.expire_time);
        Some(Self { expire_time: end, extend_time: Some(now), ..self })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(600);
    const EXTENSION: Duration = Duration::from_secs(300);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.checked_add(Duration::from_secs(seconds)).unwrap()
    }

    #[test]
    fn a_claim_ends_with_its_turn_or_its_window_and_never_begins_at_its_end() {
        let (now, window) = (at(100), Duration::from_secs(10));
        let end = |turn_end| Lifetime::begin(now, turn_end, window).map(|it| it.expire_time);
        assert_eq!(end(Some(at(105))), Some(at(105)));
        assert_eq!(end(Some(at(200))), Some(at(110)));
        assert_eq!(end(None), Some(at(110)), "without a turn the window counts");
        assert_eq!(end(Some(now)), None);
        assert_eq!(end(Some(at(99))), None);
    }

    proptest! {
        #[test]
        fn an_extension_never_shortens_happens_once_and_stays_within_its_bound(
            created in 0_u64..1_000,
            turn in 1_u64..2_000,
            paid_after in 0_u64..2_000,
            again_after in 0_u64..2_000,
        ) {
            let begun = Lifetime::begin(at(created), Some(at(created + turn)), WINDOW).unwrap();
            let now = at(created + paid_after);
            let extended = begun.extend(now, WINDOW, EXTENSION).unwrap();
            prop_assert!(extended.expire_time >= begun.expire_time);
            prop_assert!(extended.expire_time <= at(created + 900));
            // Who pays in time has the whole extension from then on.
            if now <= begun.expire_time {
                prop_assert!(extended.expire_time >= now.checked_add(EXTENSION).unwrap());
            }
            prop_assert_eq!(extended.create_time, begun.create_time);
            let again = at(created + paid_after + again_after);
            prop_assert_eq!(extended.extend(again, WINDOW, EXTENSION), None);
        }
    }
}
