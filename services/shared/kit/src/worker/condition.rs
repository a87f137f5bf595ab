//! A condition under which a worker's rounds run, such as leadership.

use std::{fmt, future::pending};

use futures_util::{Stream, StreamExt, stream::BoxStream};

/// A condition that can change at any time. The worker checks it before each round, whenever `changes` yields, and once
/// per interval.
pub struct Condition {
    is_met: Box<dyn Fn() -> bool + Send + Sync>,
    changes: BoxStream<'static, ()>,
    has_ended: bool,
    on_unmet: Box<dyn Fn() + Send + Sync>,
}

impl Condition {
    /// Creates a condition. `is_met` decides it; `changes` yields when the result may have changed.
    #[must_use]
    pub fn new(
        is_met: impl Fn() -> bool + Send + Sync + 'static,
        changes: impl Stream<Item = ()> + Send + 'static,
    ) -> Self {
        Self {
            is_met: Box::new(is_met),
            changes: changes.boxed(),
            has_ended: false,
            on_unmet: Box::new(|| {}),
        }
    }

    /// Sets an action for the loss of the condition (default: none). `report` runs when the worker finds the condition
    /// unmet, and again every interval and at every change until it is met.
    #[must_use]
    pub fn while_unmet(mut self, report: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_unmet = Box::new(report);
        self
    }

    pub(super) fn is_met(&self) -> bool {
        (self.is_met)()
    }

    pub(super) fn report_unmet(&self) {
        (self.on_unmet)();
    }

    /// Waits for the next change. Never ends once the source of changes has ended.
    pub(super) async fn changed(&mut self) {
        if !self.has_ended && self.changes.next().await.is_some() {
            return;
        }
        self.has_ended = true;
        pending::<()>().await;
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Condition").field("is_met", &self.is_met()).finish_non_exhaustive()
    }
}
