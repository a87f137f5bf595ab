//! How a queue admits.

use std::time::Duration;

/// How a queue admits; every field has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Turns to grant per minute.
    pub admissions_per_minute: u32,
    /// Most turns open at a time.
    pub open_turns_max: u32,
    /// Length of a turn.
    pub turn_duration: Duration,
    /// How long a customer may be neither seen nor heard.
    pub idle_timeout: Duration,
    /// Most entries WAITING at a time.
    pub waiting_max: u64,
}

/// What an organizer has set; the rest has the service's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyOverrides {
    /// Turns to grant per minute.
    pub admissions_per_minute: Option<u32>,
    /// Most turns open at a time.
    pub open_turns_max: Option<u32>,
    /// Length of a turn.
    pub turn_duration: Option<Duration>,
    /// How long a customer may be neither seen nor heard.
    pub idle_timeout: Option<Duration>,
    /// Most entries WAITING at a time.
    pub waiting_max: Option<u64>,
}

/// A change of what an organizer has set: outer none leaves a field, inner none gives it back to the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyChange {
    /// Turns to grant per minute.
    pub admissions_per_minute: Option<Option<u32>>,
    /// Most turns open at a time.
    pub open_turns_max: Option<Option<u32>>,
    /// Length of a turn.
    pub turn_duration: Option<Option<Duration>>,
    /// How long a customer may be neither seen nor heard.
    pub idle_timeout: Option<Option<Duration>>,
    /// Most entries WAITING at a time.
    pub waiting_max: Option<Option<u64>>,
}

impl PolicyOverrides {
    /// The policy that follows, with `defaults` for what is not set.
    #[must_use]
    pub fn over(&self, defaults: &Policy) -> Policy {
        Policy {
            admissions_per_minute: self.admissions_per_minute.unwrap_or(defaults.admissions_per_minute),
            open_turns_max: self.open_turns_max.unwrap_or(defaults.open_turns_max),
            turn_duration: self.turn_duration.unwrap_or(defaults.turn_duration),
            idle_timeout: self.idle_timeout.unwrap_or(defaults.idle_timeout),
            waiting_max: self.waiting_max.unwrap_or(defaults.waiting_max),
        }
    }

    /// What is set after `change`.
    #[must_use]
    pub fn changed(self, change: &PolicyChange) -> Self {
        Self {
            admissions_per_minute: change.admissions_per_minute.unwrap_or(self.admissions_per_minute),
            open_turns_max: change.open_turns_max.unwrap_or(self.open_turns_max),
            turn_duration: change.turn_duration.unwrap_or(self.turn_duration),
            idle_timeout: change.idle_timeout.unwrap_or(self.idle_timeout),
            waiting_max: change.waiting_max.unwrap_or(self.waiting_max),
        }
    }
}
