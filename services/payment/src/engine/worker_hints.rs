//! Hints within one process that the step of a payment may be due.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::domain::PaymentStep;

#[derive(Debug, Default)]
pub(crate) struct WorkerHints {
    initialize: Arc<Notify>,
    poll_provider: Arc<Notify>,
    settle: Arc<Notify>,
    refund: Arc<Notify>,
}

impl WorkerHints {
    /// Wakes the worker of `step`, or lets its next wait end at once.
    pub(crate) fn wake(&self, step: PaymentStep) {
        self.of(step).notify_one();
    }

    /// Returns the source of hints for the worker of `step`.
    pub(crate) fn of(&self, step: PaymentStep) -> &Arc<Notify> {
        match step {
            PaymentStep::Initialize => &self.initialize,
            PaymentStep::PollProvider => &self.poll_provider,
            PaymentStep::Settle => &self.settle,
            PaymentStep::Refund => &self.refund,
        }
    }
}
