//! How the catcher misbehaves when told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
pub(super) struct Switchboard(Arc<Mutex<Behaviour>>);

impl Switchboard {
    pub(super) fn get(&self) -> Behaviour {
        *self.lock()
    }

    pub(super) fn set(&self, behaviour: Behaviour) {
        *self.lock() = behaviour;
    }

    /// Whether the mail that begins now is refused.
    pub(super) fn takes_reject(&self) -> bool {
        take(&mut self.lock().reject_next)
    }

    /// Whether the mail that has arrived goes unanswered.
    pub(super) fn takes_close_after_data(&self) -> bool {
        take(&mut self.lock().close_after_data_next)
    }

    fn lock(&self) -> MutexGuard<'_, Behaviour> {
        // Nothing panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(left: &mut u32) -> bool {
    let Some(fewer) = left.checked_sub(1) else { return false };
    *left = fewer;
    true
}
