//! Fault injection: the failures of real providers that a merchant must handle.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// Faults to inject. The default injects none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Number of further API calls that return 503 without any effect.
    pub fail_calls: u32,
    /// Number of further API calls that are executed but return 500.
    pub lose_answers: u32,
    /// Delay of every API call, in milliseconds.
    pub delay_calls_ms: u64,
    /// Holds back all webhooks while true.
    pub hold_webhooks: bool,
    /// Delay of every webhook, in milliseconds.
    pub delay_webhooks_ms: u64,
    /// Number of additional deliveries of each webhook after the first successful one.
    pub duplicate_webhooks: u32,
    /// Sends the webhooks of one change in reverse order.
    pub reorder_webhooks: bool,
    /// Number of further webhooks that are never sent.
    pub drop_webhooks: u32,
}

/// The fault injected into one API call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    None,
    /// The call returns 503 and has no effect.
    Reject,
    /// The call takes effect but returns 500.
    LoseResponse,
}

/// Holds the current [`Behaviour`] and counts down its limited faults. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct FaultInjector {
    behaviour: Arc<Mutex<Behaviour>>,
    /// Copy of `hold_webhooks` that deliveries can wait on.
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

    /// Returns the fault and the delay of the next call and counts the fault down.
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

    /// Returns true if the next webhook must be dropped, and counts it down.
    pub(super) fn consume_webhook_drop(&self) -> bool {
        take_one(&mut self.behaviour.lock().drop_webhooks)
    }

    /// Waits until `hold_webhooks` is false.
    pub(super) async fn webhooks_released(&self) {
        // Fails only if the sender was dropped, and `self` owns it.
        let _ = self.hold.subscribe().wait_for(|hold| !hold).await;
    }
}

fn take_one(count: &mut u32) -> bool {
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}
