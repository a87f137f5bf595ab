//! The steps that payments are owed, and how workers take them up.

use futures_util::{StreamExt, stream};
use onsale_kit::error::{Chain, Kind, ServiceError};
use onsale_types::PaymentId;
use tokio::sync::Notify;

use super::App;
use crate::{
    domain::Step,
    error::Error,
    metrics,
    store::{
        payments::{self, Taken, Waits},
        webhooks,
    },
};

/// How many old webhooks go at once.
const FORGET_MAX: i64 = 1_000;

/// As often a step may run out of time or find somebody away before that is worth a warning: load and restarts do that.
const QUIET_ATTEMPTS: i32 = 3;

/// Tells the workers of this process that a step is due.
#[derive(Debug, Default)]
pub struct Wakes {
    initialize: Notify,
    ask: Notify,
    settle: Notify,
    refund: Notify,
}

impl Wakes {
    pub(super) fn wake(&self, step: Step) {
        self.of(step).notify_one();
    }

    /// Done when a step of this kind may be due.
    pub async fn woken(&self, step: Step) {
        self.of(step).notified().await;
    }

    fn of(&self, step: Step) -> &Notify {
        match step {
            Step::Initialize => &self.initialize,
            Step::Ask => &self.ask,
            Step::Settle => &self.settle,
            Step::Refund => &self.refund,
        }
    }
}

impl App {
    /// Takes the payments whose `step` is due and does it for each; answers whether there may be more. What fails is taken
    /// up again by itself.
    pub async fn sweep(&self, step: Step) -> Result<bool, Error> {
        let waits = Waits { initial: self.work.retry_initial, max: self.work.retry_max };
        // No more than are worked on: what waits for others would spend its lease waiting.
        let count_max = i64::from(self.work.concurrency);
        let due = payments::take_due(&self.stores.postgres, step, self.work.lease, count_max).await?;
        let is_full = i64::try_from(due.len()).is_ok_and(|count| count >= count_max);
        stream::iter(due)
            .for_each_concurrent(None, |taken| async move {
                if let Err(error) = self.do_step(taken.id).await {
                    metrics::step_failed(step);
                    log_failure(taken, step, &error);
                }
                // What was not brought further is owed still. Should this fail, the lease ends by itself.
                if let Err(error) = payments::put_off(&self.stores.postgres, taken, step, waits).await {
                    tracing::debug!(payment_id = %taken.id, error = %Chain(&error), "failed to put off a step");
                }
            })
            .await;
        Ok(is_full)
    }

    /// Does what is next for a payment, whatever that is by now.
    async fn do_step(&self, id: PaymentId) -> Result<(), Error> {
        let Some(payment) = payments::get(&self.stores.postgres, id).await? else { return Ok(()) };
        match payment.next_step() {
            Some(Step::Initialize) => self.reinitialize(&payment).await,
            Some(Step::Ask) => self.ask(&payment).await,
            Some(Step::Settle) => self.settle(&payment).await,
            Some(Step::Refund) => self.refund(&payment).await,
            None => Ok(()),
        }
    }

    /// Forgets webhooks that no provider will send again; answers whether there may be more.
    pub async fn forget_webhooks(&self) -> Result<bool, Error> {
        let kept = self.work.webhooks_kept;
        let forgotten = webhooks::forget(&self.stores.postgres, kept, FORGET_MAX).await?;
        Ok(forgotten >= FORGET_MAX.unsigned_abs())
    }
}

fn log_failure(taken: Taken, step: Step, error: &Error) {
    let Taken { id, attempts } = taken;
    let passes = matches!(error.kind(), Kind::Timeout | Kind::Unavailable | Kind::Contended | Kind::Limited);
    if passes && attempts <= QUIET_ATTEMPTS {
        tracing::info!(payment_id = %id, %step, attempts, error = %Chain(error), "step failed, trying again");
    } else {
        tracing::warn!(payment_id = %id, %step, attempts, error = %Chain(error), "step failed, trying again later");
    }
}
