//! HandleWebhook: believed by its signature, taken once by its event id, and acknowledged only after the commit.

use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;

use super::{App, record::Recorded};
use crate::{
    clients::providers::{RawWebhook, Webhook, WebhookError},
    convert::HandleWebhook,
    error::Error,
    metrics,
    store::webhooks::{self, NewWebhook},
};

/// What became of a webhook.
enum Taken {
    Before,
    /// With what it changed, if it was about a payment of ours.
    Now(Option<Box<Recorded>>),
}

impl App {
    /// Takes a webhook; answers whether it was taken before. One about a payment we do not know is refused, so that the
    /// provider sends it again: the row is there before the provider hears of it, so that should never be.
    pub async fn handle_webhook(&self, command: HandleWebhook) -> Result<bool, Error> {
        let provider = command.provider;
        let raw = RawWebhook { headers: &command.headers, body: &command.body };
        let read = self.provider(provider)?.read_webhook(&raw, self.clock.now());
        let webhook = read.inspect_err(|error| {
            metrics::webhook(provider.name(), "not believed");
            tracing::warn!(%provider, error = %Chain(error), "webhook is not believed");
        })?;
        let work = |transaction: Transaction| {
            let (webhook, command) = (&webhook, &command);
            async move { self.take(&transaction, webhook, command).await }
        };
        let taken = self.stores.postgres.transaction("take webhook", work).await.inspect_err(|error| {
            metrics::webhook(provider.name(), "failed");
            if matches!(error, Error::PaymentNotFound { .. }) {
                tracing::error!(%provider, event_id = webhook.event_id, %error, "webhook names a payment that is not there");
            }
        })?;
        match taken {
            Taken::Before => {
                metrics::webhook(provider.name(), "duplicate");
                Ok(true)
            }
            Taken::Now(recorded) => {
                metrics::webhook(provider.name(), "taken");
                if let Some(recorded) = recorded {
                    self.announce(*recorded).await;
                }
                Ok(false)
            }
        }
    }

    async fn take(
        &self,
        transaction: &Transaction,
        webhook: &Webhook,
        command: &HandleWebhook,
    ) -> Result<Taken, Error> {
        let new = NewWebhook {
            provider: command.provider,
            event_id: &webhook.event_id,
            event_type: &webhook.event_type,
            payment_id: webhook.news.as_ref().map(|news| news.payment_id),
            receive_time: command.receive_time,
        };
        if !webhooks::insert(transaction, &new).await? {
            return Ok(Taken::Before);
        }
        let Some(news) = &webhook.news else { return Ok(Taken::Now(None)) };
        let recorded = self.record(transaction, news.payment_id, &news.fact).await?;
        // A provider speaks for its own payments only. The error undoes what was recorded.
        if recorded.payment.provider != command.provider {
            return Err(WebhookError::Malformed("it names another provider's payment").into());
        }
        Ok(Taken::Now(Some(Box::new(recorded))))
    }
}
