//! Applies every change of a payment: its row, its next step and its event are written in one transaction; after the commit,
//! workers and watchers get hints.

use std::{sync::Arc, time::Duration};

use onsale_kit::deadline::Deadline;
use onsale_storage::{
    Stores,
    postgres::Transaction,
    redis::{self, Hints, Keyspace, Subscription},
};
use onsale_types::{Named as _, PaymentId, Timestamp};
use tokio::sync::Notify;

use super::WorkerHints;
use crate::{
    config::Config,
    domain::{Payment, PaymentEvent, PaymentState, PaymentStep, ProviderUpdate},
    error::Error,
    metrics,
    store::{
        keys,
        payments::{self, LockedPayment},
    },
};

/// Timeout of a hint to watchers. They poll too, so a longer wait would gain nothing.
const HINT_TIMEOUT: Duration = Duration::from_millis(250);

/// Time that the creating call has for its own work, besides the call to the provider.
const INITIALIZE_MARGIN: Duration = Duration::from_secs(1);

/// Time that a call which asked for a refund has to void the tickets, before a worker does it.
const VOID_TICKETS_TIMEOUT: Duration = Duration::from_secs(5);

/// Delays before a worker runs a payment's next step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepDelays {
    /// Time that the creating call has to open a session.
    pub(crate) initialize: Duration,
    /// Time that the customer has before the provider is polled.
    pub(crate) poll_provider: Duration,
}

impl StepDelays {
    pub(crate) fn new(config: &Config) -> Self {
        let initialize = config.providers.http.timeout.saturating_add(INITIALIZE_MARGIN);
        Self { initialize, poll_provider: config.work.ask_after }
    }
}

/// A payment after an attempt to change it.
#[derive(Debug)]
pub(crate) struct RecordedChange {
    pub(crate) payment: Payment,
    /// State before the change. `None` if nothing changed, because the change was recorded before or came too late.
    pub(crate) before: Option<PaymentState>,
}

pub(crate) struct PaymentChanges {
    stores: Stores,
    keys: Keyspace,
    /// Receives the hints that all processes of Payment publish in Redis.
    hints: Hints,
    worker_hints: WorkerHints,
    delays: StepDelays,
}

impl PaymentChanges {
    pub(crate) fn new(stores: Stores, keys: Keyspace, hints: Hints, delays: StepDelays) -> Self {
        Self { stores, keys, hints, worker_hints: WorkerHints::default(), delays }
    }

    pub(crate) fn delays(&self) -> StepDelays {
        self.delays
    }

    /// Returns the source of hints for the worker of `step`.
    pub(crate) fn worker_hints(&self, step: PaymentStep) -> Arc<Notify> {
        Arc::clone(self.worker_hints.of(step))
    }

    /// Subscribes to hints that a payment has changed.
    pub(crate) fn subscribe(&self, payment_id: PaymentId) -> Result<Subscription, Error> {
        let channel = keys::changes(&self.keys, payment_id).map_err(redis::Error::from)?;
        Ok(self.hints.subscribe(&channel))
    }

    /// Records a provider's update in `transaction`.
    pub(crate) async fn record_provider_update(
        &self,
        transaction: &Transaction,
        payment_id: PaymentId,
        update: &ProviderUpdate,
    ) -> Result<RecordedChange, Error> {
        let decide = |locked: &LockedPayment| locked.payment.after_update(update, locked.now);
        self.change(transaction, payment_id, decide, PaymentEvent::of_update).await
    }

    /// Records a provider's update in a transaction of its own and publishes the change.
    pub(crate) async fn apply_provider_update(
        &self,
        payment_id: PaymentId,
        update: &ProviderUpdate,
    ) -> Result<Payment, Error> {
        let work = |transaction: Transaction| async move {
            self.record_provider_update(&transaction, payment_id, update).await
        };
        let recorded = self.stores.postgres.transaction("record payment", work).await?;
        Ok(self.publish(recorded).await)
    }

    /// Locks a payment, saves the new version that `decide` returns, and appends the event that `event` returns for it.
    pub(crate) async fn change(
        &self,
        transaction: &Transaction,
        payment_id: PaymentId,
        decide: impl FnOnce(&LockedPayment) -> Option<Payment>,
        event: impl FnOnce(&Payment, Timestamp) -> Option<PaymentEvent>,
    ) -> Result<RecordedChange, Error> {
        let locked = payments::lock(transaction, payment_id).await?;
        let locked = locked.ok_or(Error::PaymentNotFound { payment_id })?;
        let Some(payment) = decide(&locked) else {
            return Ok(RecordedChange { payment: locked.payment, before: None });
        };
        payments::save(transaction, &payment, self.delay(&payment)).await?;
        if let Some(event) = event(&payment, locked.now) {
            self.stores.outbox.append(transaction, &[event]).await?;
        }
        Ok(RecordedChange { payment, before: Some(locked.payment.state) })
    }

    /// Publishes a committed change: wakes the outbox relay, the worker of the next step, and the watchers.
    pub(crate) async fn publish(&self, recorded: RecordedChange) -> Payment {
        let RecordedChange { payment, before } = recorded;
        let Some(before) = before else { return payment };
        if before != payment.state {
            metrics::entered_state(payment.provider.name(), payment.state.name());
            tracing::info!(payment_id = %payment.id, %before, state = %payment.state, "payment changed");
        }
        self.stores.outbox.wake_relay();
        if let Some(step) = payment.next_step() {
            self.worker_hints.wake(step);
        }
        let hint = async {
            let channel = keys::changes(&self.keys, payment.id).map_err(redis::Error::from)?;
            self.stores.redis.publish(&channel, payment.state.name().as_bytes()).await
        };
        if !matches!(Deadline::after(HINT_TIMEOUT).bound(hint).await, Ok(Ok(()))) {
            tracing::debug!(payment_id = %payment.id, "failed to hint watchers, their next poll finds the change");
        }
        payment
    }

    /// Returns the delay before a worker runs the next step of `payment`. The call that caused INITIALIZE or REFUND tries first.
    fn delay(&self, payment: &Payment) -> Duration {
        match payment.next_step() {
            Some(PaymentStep::Initialize) => self.delays.initialize,
            Some(PaymentStep::PollProvider) => self.delays.poll_provider,
            Some(PaymentStep::Refund) if payment.has_tickets() => VOID_TICKETS_TIMEOUT,
            Some(PaymentStep::Settle | PaymentStep::Refund) | None => Duration::ZERO,
        }
    }
}
