//! The policy of a queue: the service's defaults, and the values that an organizer set over them.

use std::time::Duration;

use super::{milestone::Milestones, refusal::Refusal};

/// The way in which a queue keeps its line. Fixed once an entry exists.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum QueueMode {
    /// Every entry is stored, and turns are granted one by one.
    #[default]
    Tracked,
    /// No entry is stored: customers hold numbered tokens, and a window that slides over the numbers decides who may buy.
    Windowed,
}

/// The policy in force: every field has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) mode: QueueMode,
    /// Turns to grant per minute; 0 stops admission.
    pub(crate) admissions_per_minute: u32,
    /// Largest number of turns that are open at a time; 0 stops admission.
    pub(crate) open_turns_max: u32,
    pub(crate) turn_duration: Duration,
    /// Time without a heartbeat after which a waiting entry expires.
    pub(crate) idle_timeout: Duration,
    /// Largest number of waiting entries; one more join is refused.
    pub(crate) waiting_max: u64,
    /// Positions at which a customer without an open stream gets a push. TRACKED only.
    pub(crate) milestones: Milestones,
    /// Sequence numbers per window. WINDOWED only.
    pub(crate) window_size: u32,
    /// Number of the newest windows that are active at a time. WINDOWED only.
    pub(crate) active_windows: u32,
    /// Time between two slides of the window. WINDOWED only.
    pub(crate) slide_interval: Duration,
}

/// Policy values that an organizer set; `None` leaves the service's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyOverrides {
    pub(crate) mode: QueueMode,
    pub(crate) admissions_per_minute: Option<u32>,
    pub(crate) open_turns_max: Option<u32>,
    pub(crate) turn_duration: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) waiting_max: Option<u64>,
    pub(crate) milestones: Option<Milestones>,
    pub(crate) window_size: Option<u32>,
    pub(crate) active_windows: Option<u32>,
    pub(crate) slide_interval: Option<Duration>,
}

/// A change of the values that an organizer set: outer `None` leaves a field as it is, inner `None` resets it to the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyChange {
    pub(crate) mode: Option<QueueMode>,
    pub(crate) admissions_per_minute: Option<Option<u32>>,
    pub(crate) open_turns_max: Option<Option<u32>>,
    pub(crate) turn_duration: Option<Option<Duration>>,
    pub(crate) idle_timeout: Option<Option<Duration>>,
    pub(crate) waiting_max: Option<Option<u64>>,
    pub(crate) milestones: Option<Option<Milestones>>,
    pub(crate) window_size: Option<Option<u32>>,
    pub(crate) active_windows: Option<Option<u32>>,
    pub(crate) slide_interval: Option<Option<Duration>>,
}

impl PolicyOverrides {
    /// Returns the policy in force, with `defaults` for the values that are not set.
    pub(crate) fn over(&self, defaults: &Policy) -> Policy {
        Policy {
            mode: self.mode,
            admissions_per_minute: self.admissions_per_minute.unwrap_or(defaults.admissions_per_minute),
            open_turns_max: self.open_turns_max.unwrap_or(defaults.open_turns_max),
            turn_duration: self.turn_duration.unwrap_or(defaults.turn_duration),
            idle_timeout: self.idle_timeout.unwrap_or(defaults.idle_timeout),
            waiting_max: self.waiting_max.unwrap_or(defaults.waiting_max),
            milestones: self.milestones.unwrap_or(defaults.milestones),
            window_size: self.window_size.unwrap_or(defaults.window_size),
            active_windows: self.active_windows.unwrap_or(defaults.active_windows),
            slide_interval: self.slide_interval.unwrap_or(defaults.slide_interval),
        }
    }

    /// Returns the values after `change`. Refuses a change of the mode once there are entries, because the two modes store
    /// their lines differently.
    pub(crate) fn changed(self, change: &PolicyChange, has_entries: bool) -> Result<Self, Refusal> {
        if has_entries && change.mode.is_some_and(|mode| mode != self.mode) {
            return Err(Refusal::ModeFixed { mode: self.mode });
        }
        Ok(Self {
            mode: change.mode.unwrap_or(self.mode),
            admissions_per_minute: change.admissions_per_minute.unwrap_or(self.admissions_per_minute),
            open_turns_max: change.open_turns_max.unwrap_or(self.open_turns_max),
            turn_duration: change.turn_duration.unwrap_or(self.turn_duration),
            idle_timeout: change.idle_timeout.unwrap_or(self.idle_timeout),
            waiting_max: change.waiting_max.unwrap_or(self.waiting_max),
            milestones: change.milestones.unwrap_or(self.milestones),
            window_size: change.window_size.unwrap_or(self.window_size),
            active_windows: change.active_windows.unwrap_or(self.active_windows),
            slide_interval: change.slide_interval.unwrap_or(self.slide_interval),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a policy that admits customers.
    pub(in crate::domain) fn some() -> Policy {
        Policy {
            mode: QueueMode::Tracked,
            admissions_per_minute: 60,
            open_turns_max: 10,
            turn_duration: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            waiting_max: 2,
            milestones: Milestones::default(),
            window_size: 10,
            active_windows: 3,
            slide_interval: Duration::from_secs(10),
        }
    }

    #[test]
    fn mode_is_fixed_once_there_are_entries() {
        let set = PolicyOverrides::default();
        let change = |mode| PolicyChange { mode: Some(mode), ..PolicyChange::default() };
        let windowed = set.changed(&change(QueueMode::Windowed), false).unwrap();
        assert_eq!(windowed.mode, QueueMode::Windowed);
        assert_eq!(windowed.changed(&change(QueueMode::Windowed), true), Ok(windowed));
        let back = windowed.changed(&change(QueueMode::Tracked), true);
        assert_eq!(back, Err(Refusal::ModeFixed { mode: QueueMode::Windowed }));
    }
}
