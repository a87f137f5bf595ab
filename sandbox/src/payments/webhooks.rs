//! Delivers signed webhooks and retries until the merchant accepts them or the attempts are used up.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
    tasks::Tasks,
};
use onsale_types::Clock;
use ring::hmac;
use tokio::sync::{Semaphore, watch};

use super::{
    behaviour::FaultInjector,
    provider_state::ProviderState,
    records::{Change, Event},
    session::seconds,
};

/// Timeout of one delivery, the merchant's response included.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent deliveries.
const DELIVERIES_IN_FLIGHT_MAX: usize = 32;
/// Additional delay under `reorder_webhooks`: the last event of a change waits once this long, the one before twice, and so on.
const REORDER_DELAY: Duration = Duration::from_millis(150);

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) secret: String,
    pub(super) retry: BackoffConfig,
    pub(super) clock: Arc<dyn Clock>,
}

/// Sends webhooks. Clones share their state.
#[derive(Clone)]
pub(super) struct Webhooks {
    settings: Arc<Settings>,
    target: watch::Receiver<Option<String>>,
    state: Arc<ProviderState>,
    faults: FaultInjector,
    client: reqwest::Client,
    slots: Arc<Semaphore>,
    tasks: Tasks,
}

impl Webhooks {
    pub(super) fn new(
        settings: Settings,
        target: watch::Receiver<Option<String>>,
        state: Arc<ProviderState>,
        faults: FaultInjector,
        tasks: Tasks,
    ) -> Result<Self, reqwest::Error> {
        onsale_kit::tls::install_provider();
        let client = reqwest::Client::builder().timeout(RESPONSE_TIMEOUT).build()?;
        let slots = Arc::new(Semaphore::new(DELIVERIES_IN_FLIGHT_MAX));
        Ok(Self { settings: Arc::new(settings), target, state, faults, client, slots, tasks })
    }

    /// Starts the delivery of events that are already recorded.
    pub(super) fn send_all(&self, events: Vec<Event>) {
        let behaviour = self.faults.get();
        let delay = Duration::from_millis(behaviour.delay_webhooks_ms);
        let count = events.len();
        for (index, event) in events.into_iter().enumerate() {
            if self.faults.consume_webhook_drop() {
                self.close_event(&event.id);
                continue;
            }
            let after = u32::try_from(count.saturating_sub(index)).unwrap_or(u32::MAX);
            let wait =
                if behaviour.reorder_webhooks { REORDER_DELAY.saturating_mul(after) } else { Duration::ZERO };
            let (sender, stop) = (self.clone(), self.tasks.token());
            let copies = behaviour.duplicate_webhooks.saturating_add(1);
            self.tasks.spawn("sandbox webhook", async move {
                let delivery = async {
                    tokio::time::sleep(delay.saturating_add(wait)).await;
                    sender.deliver(&event, copies).await;
                };
                stop.run_until_cancelled(delivery).await;
            });
        }
    }

    async fn deliver(mut self, event: &Event, copies: u32) {
        for _copy in 0..copies {
            let mut backoff = Backoff::new(self.settings.retry);
            while !self.try_deliver(event).await {
                let Some(delay) = backoff.next_delay() else {
                    tracing::error!(event_id = event.id, "webhook abandoned after its last attempt");
                    break;
                };
                tokio::time::sleep(delay).await;
            }
        }
        self.close_event(&event.id);
    }

    /// Makes one attempt with a new signature. Returns true if the merchant responded with 2xx. Waits while webhooks are held
    /// or no URL is set.
    async fn try_deliver(&mut self, event: &Event) -> bool {
        self.faults.webhooks_released().await;
        let Ok(url) = self.target.wait_for(Option::is_some).await.map(|url| url.clone()) else {
            return false;
        };
        let Ok(_slot) = self.slots.acquire().await else { return false };
        let now = seconds(self.settings.clock.now());
        let request = self
            .client
            .post(url.unwrap_or_default())
            .header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", signature(&self.settings.secret, now, &event.body))
            .body(event.body.clone());
        match request.send().await {
            Ok(response) if response.status().is_success() => true,
            Ok(response) => {
                let status = response.status().as_u16();
                tracing::debug!(event_id = event.id, status, "merchant rejected webhook");
                false
            }
            Err(error) => {
                tracing::debug!(event_id = event.id, error = %Chain(&error), "webhook delivery failed");
                false
            }
        }
    }

    fn close_event(&self, event_id: &str) {
        let recorded = self.state.change(|_data| (vec![Change::EventClosed(event_id.to_owned())], ()));
        if let Err(error) = recorded {
            // The event is delivered again after a restart; merchants must deduplicate by its id anyway.
            tracing::warn!(error = %Chain(&error), "failed to record the end of a webhook delivery, a restart sends it again");
        }
    }
}

/// Returns the value of the header `Stripe-Signature`: time and HMAC-SHA256 of `<time>.<body>`.
fn signature(secret: &str, now_seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{now_seconds}.{body}").as_bytes());
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={now_seconds},v1={hex}")
}
