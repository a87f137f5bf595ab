//! How every change of a payment is kept: its row, its event and its next step in one transaction; then who waits is told.

use std::time::Duration;

use onsale_kit::deadline::Deadline;
use onsale_storage::{messaging::NewEvent, postgres::Transaction, redis};
use onsale_types::{PaymentId, Timestamp};

use super::App;
use crate::{
    convert,
    domain::{Fact, Payment, State},
    error::Error,
    metrics,
    store::{
        keys,
        payments::{self, Locked},
    },
};

/// A hint is worth no longer wait: watchers look by themselves too.
const HINT_TIME_MAX: Duration = Duration::from_millis(250);

/// A payment after something was to change.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) payment: Payment,
    /// The state before. `None`: nothing changed; it was known already, or came too late.
    pub(super) before: Option<State>,
}

impl App {
    /// Keeps what a provider said about a payment, in `transaction`.
    pub(super) async fn record(
        &self,
        transaction: &Transaction,
        id: PaymentId,
        fact: &Fact,
    ) -> Result<Recorded, Error> {
        let decide = |locked: &Locked| locked.payment.after(fact, locked.now);
        let tell = |payment: &Payment, now| match payment.state {
            State::Confirmed => Some(NewEvent::new(payment.claim_id, &convert::confirmed(payment))),
            State::Failed => Some(NewEvent::new(payment.claim_id, &convert::failed(payment, now))),
            State::Initializing | State::Pending | State::Refunded => None,
        };
        self.change(transaction, id, decide, tell).await
    }

    /// As [`App::record`], in a transaction of its own, and tells who waits.
    pub(super) async fn hear(&self, id: PaymentId, fact: &Fact) -> Result<Payment, Error> {
        let work = |transaction: Transaction| async move { self.record(&transaction, id, fact).await };
        let recorded = self.stores.postgres.transaction("record payment", work).await?;
        Ok(self.announce(recorded).await)
    }

    /// Changes a payment as `decide` says, with the event that `tell` makes of it.
    pub(super) async fn change(
        &self,
        transaction: &Transaction,
        id: PaymentId,
        decide: impl FnOnce(&Locked) -> Option<Payment>,
        tell: impl FnOnce(&Payment, Timestamp) -> Option<NewEvent>,
    ) -> Result<Recorded, Error> {
        let locked = payments::lock(transaction, id).await?;
        let locked = locked.ok_or(Error::PaymentNotFound { payment_id: id })?;
        let Some(payment) = decide(&locked) else {
            return Ok(Recorded { payment: locked.payment, before: None });
        };
        payments::save(transaction, &payment, self.due(&payment)).await?;
        if let Some(event) = tell(&payment, locked.now) {
            self.stores.outbox.append(transaction, &[event]).await?;
        }
        Ok(Recorded { payment, before: Some(locked.payment.state) })
    }

    /// After the commit: wakes the relay, the worker of the next step, and whoever watches.
    pub(super) async fn announce(&self, recorded: Recorded) -> Payment {
        let Recorded { payment, before } = recorded;
        let Some(before) = before else { return payment };
        if before != payment.state {
            metrics::entered_state(&payment);
            tracing::info!(payment_id = %payment.id, %before, state = %payment.state, "payment changed");
        }
        self.stores.outbox.wake_relay();
        if let Some(step) = payment.next_step() {
            self.wakes.wake(step);
        }
        let hint = async {
            let channel = keys::changes(&self.keys, payment.id).map_err(redis::Error::from)?;
            self.stores.redis.publish(&channel, payment.state.name().as_bytes()).await
        };
        if !matches!(Deadline::after(HINT_TIME_MAX).bound(hint).await, Ok(Ok(()))) {
            tracing::debug!(payment_id = %payment.id, "watchers could not be hinted, they look by themselves");
        }
        payment
    }
}
