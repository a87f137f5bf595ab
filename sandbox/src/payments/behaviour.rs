//! How a provider misbehaves when it is told to: the faults that a merchant has to survive.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What goes wrong from now on. The default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// So many of the next calls answer 503 and do nothing.
    pub fail_calls: u32,
    /// So many of the next calls are done, and answer 500 nevertheless.
    pub lose_answers: u32,
    /// Every call is answered this much later.
    pub delay_calls_ms: u64,
    /// Webhooks wait until this is false again.
    pub hold_webhooks: bool,
    /// Every webhook is sent this much later.
    pub delay_webhooks_ms: u64,
    /// Every webhook is sent so many times more, also after it was taken.
    pub duplicate_webhooks: u32,
    /// Of the webhooks that come about together, later ones are sent first.
    pub reorder_webhooks: bool,
    /// So many of the next webhooks are never sent.
    pub drop_webhooks: u32,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    None,
    /// Nothing is done.
    Reject,
    /// It is done, and the answer lost.
    LoseResponse,
}

/// Where the behaviour is set and read. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct FaultInjector {
    behaviour: Arc<Mutex<Behaviour>>,
    /// Tells those that wait for held webhooks.
    hold: watch::Sender<bool>,
}

impl Default for FaultInjector {
    fn default() -> Self {
        Self { behaviour: Arc::default(), hold: watch::Sender::new(false) }
    }
}

impl FaultInjector {
    pub(super) fn set(&self, behaviour: Behaviour) {
        self.hold.send_replace(behaviour.hold_webhooks);
        *self.behaviour.lock() = behaviour;
    }

    pub(super) fn get(&self) -> Behaviour {
        self.behaviour.lock().clone()
    }

    /// Counts one call.
    pub(super) fn consume_call_fault(&self) -> (CallFault, Duration) {
        let mut behaviour = self.behaviour.lock();
        let delay = Duration::from_millis(behaviour.delay_calls_ms);
        if take_one(&mut behaviour.fail_calls) {
            (CallFault::Reject, delay)
        } else if take_one(&mut behaviour.lose_answers) {
            (CallFault::LoseResponse, delay)
        } else {
            (CallFault::None, delay)
        }
    }

    /// Counts one webhook; answers whether it is never to be sent.
    pub(super) fn consume_webhook_drop(&self) -> bool {
        take_one(&mut self.behaviour.lock().drop_webhooks)
    }

    /// Done as soon as webhooks are not held.
    pub(super) async fn webhooks_released(&self) {
        // Fails only when the sender is gone, and we hold it.
        let _ = self.hold.subscribe().wait_for(|hold| !hold).await;
    }
}

fn take_one(count: &mut u32) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}
