//! Jobs "initialize payments", "ask providers", "settle payments" and "refund payments": workers → app → store::payments → the
//! file of the step.

use futures_util::{StreamExt, stream};
use onsale_kit::error::{Chain, Kind, ServiceError};
use onsale_storage::due::BackoffBounds;
use onsale_types::{Named as _, PaymentId};

use super::App;
use crate::{
    domain::PaymentStep,
    error::Error,
    metrics,
    store::payments::{self, LeasedStep},
};

/// Attempts that may fail on a timeout or an unavailable dependency before a warning is logged. Load or a restart can cause three.
const QUIET_ATTEMPTS: u32 = 3;

impl App {
    /// Leases payments whose `step` is due and runs the step of each. Returns true if more may be due. A failed step is
    /// rescheduled and does not fail the round.
    pub(crate) async fn run_due_steps(&self, step: PaymentStep) -> Result<bool, Error> {
        let backoff = BackoffBounds { initial: self.work.retry_initial, max: self.work.retry_max };
        // Lease only as many as run at the same time: others would spend their lease waiting.
        let concurrency = self.work.concurrency;
        let due = payments::lease_due(&self.stores.postgres, step, self.work.lease, concurrency).await?;
        let is_full = u32::try_from(due.len()).is_ok_and(|count| count >= concurrency);
        stream::iter(due)
            .for_each_concurrent(None, |leased| async move {
                if let Err(error) = self.run_step(leased.payment_id).await {
                    metrics::step_failed(step.name());
                    log_failure(leased, step, &error);
                }
                // Does nothing if the payment has moved on. If it fails, the step is due when the lease ends.
                if let Err(error) = payments::reschedule(&self.stores.postgres, leased, step, backoff).await {
                    tracing::debug!(payment_id = %leased.payment_id, error = %Chain(&error), "failed to reschedule a step, it is due when its lease ends");
                }
            })
            .await;
        Ok(is_full)
    }

    /// Runs the current next step of a payment, which may have changed since the lease.
    async fn run_step(&self, payment_id: PaymentId) -> Result<(), Error> {
        let Some(payment) = payments::get(&self.stores.postgres, payment_id).await? else { return Ok(()) };
        match payment.next_step() {
            Some(PaymentStep::Initialize) => self.initialize_payment(&payment).await,
            Some(PaymentStep::PollProvider) => self.poll_provider(&payment).await,
            Some(PaymentStep::Settle) => self.settle_payment(&payment).await,
            Some(PaymentStep::Refund) => self.send_refund(&payment).await,
            None => Ok(()),
        }
    }
}

fn log_failure(leased: LeasedStep, step: PaymentStep, error: &Error) {
    let LeasedStep { payment_id, attempts } = leased;
    let is_transient =
        matches!(error.kind(), Kind::Timeout | Kind::Unavailable | Kind::Contended | Kind::Limited);
    let error = Chain(error);
    if is_transient && attempts <= QUIET_ATTEMPTS {
        tracing::info!(%payment_id, %step, attempts, %error, "payment step failed, retrying after a backoff");
    } else {
        tracing::warn!(%payment_id, %step, attempts, %error, "payment step failed, retrying after a backoff");
    }
}
