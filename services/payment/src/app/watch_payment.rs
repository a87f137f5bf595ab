//! WatchPayment: the payment as it is, then every change, until there is none to come.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use onsale_storage::redis::{self, Subscription};
use onsale_types::{CustomerId, PaymentId};

use super::{App, Viewer};
use crate::{convert::Lookup, domain::Payment, error::Error, store::keys};

/// One watcher.
struct Watch {
    app: Arc<App>,
    viewer: Viewer,
    id: PaymentId,
    hints: Subscription,
    /// What the watcher saw last.
    seen: Option<Payment>,
}

impl App {
    /// The payment of `customer`, as it is and as it changes. Ends after a state that is final for a customer.
    pub async fn watch_payment(
        self: Arc<Self>,
        customer: CustomerId,
        id: PaymentId,
    ) -> Result<impl Stream<Item = Result<Payment, Error>> + Send + 'static, Error> {
        let viewer = Viewer { customer: Some(customer), ..Viewer::default() };
        // Listening before looking: what changes in between is hinted at.
        let channel = keys::changes(&self.keys, id).map_err(redis::Error::from)?;
        let hints = self.hints.subscribe(&channel);
        let first = self.get_payment(viewer, Lookup::Payment(id)).await?;
        let watch = Watch { app: self, viewer, id, hints, seen: Some(first.clone()) };
        let is_final = first.state.is_final();
        let changes = stream::unfold((watch, is_final), |(mut watch, is_over)| async move {
            if is_over {
                return None;
            }
            let change = watch.next().await;
            let is_over = change.as_ref().map_or(true, |payment| payment.state.is_final());
            Some((change, (watch, is_over)))
        });
        Ok(stream::iter([Ok(first)]).chain(changes))
    }
}

impl Watch {
    /// Waits until the payment is another than the watcher saw.
    async fn next(&mut self) -> Result<Payment, Error> {
        loop {
            // Hints get lost: the timer sees to what they miss.
            let _ = tokio::time::timeout(self.app.payments.watch_every, self.hints.next()).await;
            let payment = self.app.get_payment(self.viewer, Lookup::Payment(self.id)).await?;
            if self.seen.as_ref() != Some(&payment) {
                self.seen = Some(payment.clone());
                return Ok(payment);
            }
        }
    }
}
