//! The life of a delivery: QUEUED and SENDING in turn, then DELIVERED, SKIPPED or DEAD; DEAD goes back to QUEUED when a
//! person asks for it.

use std::time::Duration;

use onsale_types::{EventId, JobId, Timestamp};
use uuid::Uuid;

use super::{content::Template, text::EmailAddress};

/// Where a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for its next attempt.
    Queued,
    /// A worker is sending it.
    Sending,
    /// The provider took it.
    Delivered,
    /// Not sent: it came too late.
    Skipped,
    /// All attempts failed.
    Dead,
}

impl State {
    const ALL: [Self; 5] = [Self::Queued, Self::Sending, Self::Delivered, Self::Skipped, Self::Dead];

    /// Its name, as the store and the contract have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Sending => "SENDING",
            Self::Delivered => "DELIVERED",
            Self::Skipped => "SKIPPED",
            Self::Dead => "DEAD",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// How something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Email.
    Email,
    /// Push to a device.
    Push,
}

impl Channel {
    /// Its name, as the store has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Email => "EMAIL",
            Self::Push => "PUSH",
        }
    }

    /// The channel of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        [Self::Email, Self::Push].into_iter().find(|channel| channel.name() == name)
    }
}

/// A delivery, as an organizer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Which.
    pub delivery_id: Uuid,
    /// Of which job.
    pub job_id: JobId,
    /// About which event.
    pub event_id: EventId,
    /// What is sent.
    pub template: Template,
    /// How.
    pub channel: Channel,
    /// To whom.
    pub email: EmailAddress,
    /// Where it is.
    pub state: State,
    /// When it is taken next, if it is QUEUED or SENDING.
    pub due_time: Option<Timestamp>,
    /// Since when it exists.
    pub create_time: Timestamp,
    /// When it ended, if it did.
    pub end_time: Option<Timestamp>,
    /// Every attempt, oldest first.
    pub attempts: Vec<Attempt>,
}

/// One try to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it began.
    pub time: Timestamp,
    /// Through whom.
    pub provider: String,
    /// The provider's name for the message.
    pub provider_message_id: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// What a worker does with a delivery that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends it.
    Send,
    /// Leaves it: it is no longer worth sending.
    Skip,
    /// Gives it up: every worker that tried died.
    Bury,
}

/// Decides what to do with a delivery that is due after so many attempts of its round. It may be one that was being sent
/// when its worker died: that attempt counts, or one that kills its worker would be tried for ever.
#[must_use]
pub fn step(round_attempts: u32, is_expired: bool, pauses: &[Duration]) -> Step {
    if is_expired {
        Step::Skip
    } else if round_attempts >= attempts_max(pauses) {
        Step::Bury
    } else {
        Step::Send
    }
}

/// What follows an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another attempt, so much later.
    Again(Duration),
    /// None: to the dead letters.
    Dead,
}

/// Decides what follows the failed attempt `round_attempt` (from 1) of its round: the pauses say how long each wait is and
/// with their number how many there are. A hopeless failure is the last.
#[must_use]
pub fn after_failure(round_attempt: u32, is_hopeless: bool, pauses: &[Duration]) -> AfterFailure {
    let index = usize::try_from(round_attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    match pauses.get(index) {
        Some(pause) if !is_hopeless => AfterFailure::Again(*pause),
        Some(_) | None => AfterFailure::Dead,
    }
}

fn attempts_max(pauses: &[Duration]) -> u32 {
    u32::try_from(pauses.len()).unwrap_or(u32::MAX).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSES: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];

    #[test]
    fn attempts_are_now_after_half_a_minute_after_five_minutes_and_then_none() {
        assert_eq!(after_failure(1, false, &PAUSES), AfterFailure::Again(PAUSES[0]));
        assert_eq!(after_failure(2, false, &PAUSES), AfterFailure::Again(PAUSES[1]));
        assert_eq!(after_failure(3, false, &PAUSES), AfterFailure::Dead);
        assert_eq!(after_failure(1, true, &PAUSES), AfterFailure::Dead);
    }

    #[test]
    fn what_came_too_late_is_skipped_and_what_kills_its_workers_is_buried() {
        assert_eq!(step(0, false, &PAUSES), Step::Send);
        assert_eq!(step(2, false, &PAUSES), Step::Send);
        assert_eq!(step(3, false, &PAUSES), Step::Bury);
        assert_eq!(step(0, true, &PAUSES), Step::Skip);
    }

    proptest! {
        #[test]
        fn a_delivery_ends_after_one_attempt_more_than_pauses(pauses in prop::collection::vec(1_u64..1_000, 0..6)) {
            let pauses: Vec<_> = pauses.into_iter().map(Duration::from_secs).collect();
            let mut attempts = 0;
            while step(attempts, false, &pauses) == Step::Send {
                attempts += 1;
                if after_failure(attempts, false, &pauses) == AfterFailure::Dead {
                    break;
                }
            }
            prop_assert_eq!(usize::try_from(attempts).unwrap(), pauses.len() + 1);
        }
    }
}
