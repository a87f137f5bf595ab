//! How the catcher misbehaves when told to.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What goes wrong next. Nothing, by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Behaviour {
    /// So many mails are refused with 451, before their text is read.
    pub reject_next: u32,
    /// So many mails are kept and never answered: the connection closes, and the sender cannot know that they arrived.
    pub close_after_data_next: u32,
}

/// The behaviour that counts now. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultInjector(Arc<Mutex<Behaviour>>);

impl FaultInjector {
    pub(super) fn get(&self) -> Behaviour {
        *self.0.lock()
    }

    pub(super) fn set(&self, behaviour: Behaviour) {
        *self.0.lock() = behaviour;
    }

    /// Whether the mail that begins now is refused.
    pub(super) fn consume_rejection(&self) -> bool {
        take_one(&mut self.0.lock().reject_next)
    }

    /// Whether the mail that has arrived goes unanswered.
    pub(super) fn consume_close_after_data(&self) -> bool {
        take_one(&mut self.0.lock().close_after_data_next)
    }
}

fn take_one(left: &mut u32) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    true
}
