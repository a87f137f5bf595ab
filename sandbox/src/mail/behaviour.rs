//! Fault injection for the mail catcher.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Faults to inject. The default injects none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// Number of further mails that are refused with 451 at MAIL FROM.
    pub reject_next: u32,
    /// Number of further mails that are stored but not acknowledged: the connection closes, so the sender cannot know that
    /// they arrived.
    pub close_after_data_next: u32,
}

/// Holds the current [`Behaviour`] and counts it down. Clones share their state.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultInjector(Arc<Mutex<Behaviour>>);

impl FaultInjector {
    pub(super) fn get(&self) -> Behaviour {
        *self.0.lock()
    }

    pub(super) fn set(&self, behaviour: Behaviour) {
        *self.0.lock() = behaviour;
    }

    /// Returns true if the new mail must be refused, and counts the fault down.
    pub(super) fn consume_rejection(&self) -> bool {
        take_one(&mut self.0.lock().reject_next)
    }

    /// Returns true if the stored mail must not be acknowledged, and counts the fault down.
    pub(super) fn consume_close_after_data(&self) -> bool {
        take_one(&mut self.0.lock().close_after_data_next)
    }
}

fn take_one(left: &mut u32) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    true
}
