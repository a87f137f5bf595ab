//! An entry as its customer sees it.

use std::time::Duration;

use onsale_types::{CustomerId, EventId};

use super::{
    entry::{Entry, EntryState},
    estimate::{Estimate, estimate},
    queue::{QueueAndLine, QueueState},
    turn::GrantedTurn,
    update_pacing::next_poll_after,
};

/// A customer's question about their own entry.
#[derive(Clone, Debug)]
pub(crate) struct EntryQuery {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
    /// Empty if the customer sent none.
    pub(crate) queue_token: String,
}

/// An entry as its customer sees it, at one revision of its queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryView {
    pub(crate) revision: u64,
    pub(crate) entry: Entry,
    /// Number of waiting entries before this one, plus one; 0 if it does not wait.
    pub(crate) position: u64,
    /// `None` if the entry does not wait or nobody is being admitted.
    pub(crate) estimate: Option<Estimate>,
    /// The open turn.
    pub(crate) turn: Option<GrantedTurn>,
    pub(crate) queue_state: QueueState,
    /// Time to wait before the next poll.
    pub(crate) next_poll_after: Duration,
}

impl EntryView {
    /// Builds the view of `entry`. `position` counts only while the entry waits, `turn` is that of an admitted entry, and
    /// `polls_per_second` is the load of this pod, which stretches the time to the next poll.
    pub(crate) fn new(
        current: &QueueAndLine,
        entry: Entry,
        position: Option<u64>,
        turn: Option<GrantedTurn>,
        polls_per_second: u64,
    ) -> Self {
        let (queue, line) = (&current.queue, &current.line);
        let (position, estimate) = if entry.state == EntryState::Waiting {
            // A waiting entry without a position is being admitted at this moment.
            let position = position.unwrap_or(1);
            (position, estimate(position, queue.state, &queue.policy, line.shown_service_time))
        } else {
            (0, None)
        };
        Self {
            revision: line.revision,
            entry,
            position,
            estimate,
            turn,
            queue_state: queue.state,
            next_poll_after: next_poll_after(position, queue.policy.idle_timeout, polls_per_second),
        }
    }
}
