//! Life of a delivery: it alternates between QUEUED and SENDING until it is DELIVERED, SKIPPED or DEAD. An organizer may
//! return a DEAD delivery to QUEUED.

use std::time::Duration;

use onsale_types::{EventId, JobId, Timestamp};
use uuid::Uuid;

use super::{content::Template, text::EmailAddress};

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum DeliveryState {
    /// Waits for its next attempt.
    Queued,
    /// Leased by a worker that is sending it.
    Sending,
    /// Accepted by the provider.
    Delivered,
    /// Not sent, because its job expired first.
    Skipped,
    /// Failed in every attempt of its round, or permanently.
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Channel {
    Email,
    /// Push notification to a device; not sent yet.
    Push,
}

/// One job on one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) delivery_id: Uuid,
    pub(crate) job_id: JobId,
    pub(crate) event_id: EventId,
    pub(crate) template: Template,
    pub(crate) channel: Channel,
    pub(crate) email: EmailAddress,
    pub(crate) state: DeliveryState,
    /// Time of the next attempt if QUEUED, end of the lease if SENDING, otherwise `None`.
    pub(crate) due_time: Option<Timestamp>,
    pub(crate) create_time: Timestamp,
    /// `None` while it is QUEUED or SENDING.
    pub(crate) end_time: Option<Timestamp>,
    /// All attempts, oldest first.
    pub(crate) attempts: Vec<DeliveryAttempt>,
}

/// One attempt to send a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryAttempt {
    pub(crate) begin_time: Timestamp,
    pub(crate) provider: String,
    /// Id that the provider gave the message.
    pub(crate) provider_message_id: Option<String>,
    /// `None` if the attempt succeeded or is still running.
    pub(crate) error: Option<String>,
}

/// Action that a worker takes on a due delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DueAction {
    Send,
    /// End it unsent, because its job has expired.
    Skip,
    /// End it, because every worker that tried to send it crashed.
    DeadLetter,
}

/// Decides what to do with a delivery that is due after `round_attempts` attempts of its round. An attempt whose worker crashed
/// counts as well: otherwise a delivery that crashes its worker would be retried forever.
pub(crate) fn due_action(round_attempts: u32, is_expired: bool, pauses: &[Duration]) -> DueAction {
    if is_expired {
        DueAction::Skip
    } else if round_attempts >= attempts_max(pauses) {
        DueAction::DeadLetter
    } else {
        DueAction::Send
    }
}

/// Consequence of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The next attempt follows after this pause.
    Retry(Duration),
    Dead,
}

/// Decides what follows the failed attempt `round_attempt` (from 1) of its round. Attempt n is retried after the n-th of
/// `pauses`; the attempt after the last pause, and any permanent failure, ends the delivery.
pub(crate) fn after_failure(round_attempt: u32, is_permanent: bool, pauses: &[Duration]) -> AfterFailure {
    let index = usize::try_from(round_attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    match pauses.get(index) {
        Some(pause) if !is_permanent => AfterFailure::Retry(*pause),
        Some(_) | None => AfterFailure::Dead,
    }
}

/// Outcome of one attempt, as it is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    Delivered { provider_message_id: Option<String> },
    Retry { error: String, pause: Duration },
    Dead { error: String },
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
    fn failed_attempt_is_retried_after_each_pause() {
        assert_eq!(after_failure(1, false, &PAUSES), AfterFailure::Retry(PAUSES[0]));
        assert_eq!(after_failure(2, false, &PAUSES), AfterFailure::Retry(PAUSES[1]));
        assert_eq!(after_failure(3, false, &PAUSES), AfterFailure::Dead);
    }

    #[test]
    fn permanent_failure_is_not_retried() {
        assert_eq!(after_failure(1, true, &PAUSES), AfterFailure::Dead);
    }

    #[test]
    fn due_delivery_is_sent_until_its_attempts_are_used_up() {
        assert_eq!(due_action(0, false, &PAUSES), DueAction::Send);
        assert_eq!(due_action(2, false, &PAUSES), DueAction::Send);
        assert_eq!(due_action(3, false, &PAUSES), DueAction::DeadLetter);
    }

    #[test]
    fn expired_delivery_is_skipped() {
        assert_eq!(due_action(0, true, &PAUSES), DueAction::Skip);
    }

    proptest! {
        #[test]
        fn delivery_ends_after_one_attempt_more_than_pauses(pauses in prop::collection::vec(1_u64..1_000, 0..6)) {
            let pauses: Vec<_> = pauses.into_iter().map(Duration::from_secs).collect();
            let mut attempts = 0;
            while due_action(attempts, false, &pauses) == DueAction::Send {
                attempts += 1;
                if after_failure(attempts, false, &pauses) == AfterFailure::Dead {
                    break;
                }
            }
            prop_assert_eq!(usize::try_from(attempts).unwrap(), pauses.len() + 1);
        }
    }
}
