//! `WatchPayment`: grpc → app → engine (hints) → store::payments.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use onsale_storage::redis::Subscription;
use onsale_types::{CustomerId, PaymentId};

use super::App;
use crate::{
    domain::{Payment, PaymentLookup, Viewer},
    error::Error,
};

/// State of one open stream.
struct Watcher {
    app: Arc<App>,
    viewer: Viewer,
    payment_id: PaymentId,
    hints: Subscription,
    last_sent: Payment,
}

impl App {
    /// Streams a payment of the customer: first its current version, then each change. The stream ends after CONFIRMED, FAILED
    /// or REFUNDED.
    pub(crate) async fn watch_payment(
        self: Arc<Self>,
        customer_id: CustomerId,
        payment_id: PaymentId,
    ) -> Result<impl Stream<Item = Result<Payment, Error>> + Send + 'static, Error> {
        let viewer = Viewer { customer_id: Some(customer_id), ..Viewer::default() };
        // Subscribe before the first read: a change in between then sends a hint.
        let hints = self.changes.subscribe(payment_id)?;
        let first = self.get_payment(viewer, PaymentLookup::Payment(payment_id)).await?;
        let is_final = first.state.is_final();
        let watcher = Watcher { app: self, viewer, payment_id, hints, last_sent: first.clone() };
        let changes = stream::unfold((watcher, is_final), |(mut watcher, is_over)| async move {
            if is_over {
                return None;
            }
            let change = watcher.next_change().await;
            let is_over = change.as_ref().map_or(true, |payment| payment.state.is_final());
            Some((change, (watcher, is_over)))
        });
        Ok(stream::iter([Ok(first)]).chain(changes))
    }
}

impl Watcher {
    /// Waits until the payment differs from the version that was sent last.
    async fn next_change(&mut self) -> Result<Payment, Error> {
        loop {
            // Hints can be lost, so the payment is also read every `watch_every`.
            let _ = tokio::time::timeout(self.app.payments.watch_every, self.hints.next()).await;
            let lookup = PaymentLookup::Payment(self.payment_id);
            let payment = self.app.get_payment(self.viewer, lookup).await?;
            if self.last_sent != payment {
                self.last_sent = payment.clone();
                return Ok(payment);
            }
        }
    }
}
