//! How a queue admits.

use std::time::Duration;

use super::{milestone::Milestones, refusal::Refusal};

onsale_types::named! {
    /// How a queue keeps its line.
    #[derive(Default)]
    QueueMode {
        /// Every entry is stored; turns are granted one by one.
        #[default]
        Tracked = "TRACKED",
        /// Tickets with a sequence number; whose turn it is follows from a sliding window.
        Windowed = "WINDOWED",
    }
}

/// How a queue admits; every field has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// How the line is kept.
    pub(crate) mode: QueueMode,
    /// Turns to grant per minute.
    pub(crate) admissions_per_minute: u32,
    /// Most turns open at a time.
    pub(crate) open_turns_max: u32,
    /// Length of a turn.
    pub(crate) turn_duration: Duration,
    /// How long a customer may be neither seen nor heard.
    pub(crate) idle_timeout: Duration,
    /// Most entries WAITING at a time.
    pub(crate) waiting_max: u64,
    /// Positions at which a customer who does not watch is told. TRACKED only.
    pub(crate) milestones: Milestones,
    /// Sequence numbers per window. WINDOWED only.
    pub(crate) window_size: u32,
    /// How many of the newest windows are active at a time. WINDOWED only.
    pub(crate) active_windows: u32,
    /// How often the window slides. WINDOWED only.
    pub(crate) slide_interval: Duration,
}

/// What an organizer has set; the rest has the service's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyOverrides {
    /// How the line is kept.
    pub(crate) mode: QueueMode,
    /// Turns to grant per minute.
    pub(crate) admissions_per_minute: Option<u32>,
    /// Most turns open at a time.
    pub(crate) open_turns_max: Option<u32>,
    /// Length of a turn.
    pub(crate) turn_duration: Option<Duration>,
    /// How long a customer may be neither seen nor heard.
    pub(crate) idle_timeout: Option<Duration>,
    /// Most entries WAITING at a time.
    pub(crate) waiting_max: Option<u64>,
    /// Positions at which a customer who does not watch is told. TRACKED only.
    pub(crate) milestones: Option<Milestones>,
    /// Sequence numbers per window. WINDOWED only.
    pub(crate) window_size: Option<u32>,
    /// How many of the newest windows are active at a time. WINDOWED only.
    pub(crate) active_windows: Option<u32>,
    /// How often the window slides. WINDOWED only.
    pub(crate) slide_interval: Option<Duration>,
}

/// A change of what an organizer has set: outer none leaves a field, inner none gives it back to the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PolicyChange {
    /// How the line is kept.
    pub(crate) mode: Option<QueueMode>,
    /// Turns to grant per minute.
    pub(crate) admissions_per_minute: Option<Option<u32>>,
    /// Most turns open at a time.
    pub(crate) open_turns_max: Option<Option<u32>>,
    /// Length of a turn.
    pub(crate) turn_duration: Option<Option<Duration>>,
    /// How long a customer may be neither seen nor heard.
    pub(crate) idle_timeout: Option<Option<Duration>>,
    /// Most entries WAITING at a time.
    pub(crate) waiting_max: Option<Option<u64>>,
    /// Positions at which a customer who does not watch is told. TRACKED only.
    pub(crate) milestones: Option<Option<Milestones>>,
    /// Sequence numbers per window. WINDOWED only.
    pub(crate) window_size: Option<Option<u32>>,
    /// How many of the newest windows are active at a time. WINDOWED only.
    pub(crate) active_windows: Option<Option<u32>>,
    /// How often the window slides. WINDOWED only.
    pub(crate) slide_interval: Option<Option<Duration>>,
}

impl PolicyOverrides {
    /// The policy that follows, with `defaults` for what is not set.
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

    /// What is set after `change`. The mode stays once somebody joined: the two keep their lines differently.
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

    /// A policy with which something happens.
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
    fn the_mode_is_fixed_once_somebody_joined_and_saying_it_again_changes_nothing() {
        let set = PolicyOverrides::default();
        let change = |mode| PolicyChange { mode: Some(mode), ..PolicyChange::default() };
        let windowed = set.changed(&change(QueueMode::Windowed), false).unwrap();
        assert_eq!(windowed.mode, QueueMode::Windowed);
        assert_eq!(windowed.changed(&change(QueueMode::Windowed), true), Ok(windowed));
        let back = windowed.changed(&change(QueueMode::Tracked), true);
        assert_eq!(back, Err(Refusal::ModeFixed { mode: QueueMode::Windowed }));
    }
}
