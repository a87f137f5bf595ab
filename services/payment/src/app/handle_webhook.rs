//! `HandleWebhook`: grpc → app → clients::providers (signature) → store::webhooks → engine.
//!
//! Verifies the provider's signature, deduplicates by the provider's event id, and acknowledges only after the commit.

use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;
use onsale_types::Named as _;

use super::App;
use crate::{
    clients::{RawWebhook, Webhook, WebhookError},
    domain::HandleWebhook,
    engine::RecordedChange,
    error::Error,
    metrics,
    store::webhooks::{self, NewWebhook},
};

enum WebhookOutcome {
    /// The event was recorded before.
    Duplicate,
    /// `None`: the event is about no payment of ours.
    Recorded(Option<Box<RecordedChange>>),
}

impl App {
    /// Records a webhook; returns true if it was recorded before. A webhook about an unknown payment is refused, so that the
    /// provider sends it again. This should not happen: the payment is stored before the provider learns of it.
    pub(crate) async fn handle_webhook(&self, command: HandleWebhook) -> Result<bool, Error> {
        let provider = command.provider;
        let raw = RawWebhook { headers: &command.headers, body: &command.body };
        let read = self.provider(provider)?.read_webhook(&raw, self.clock.now());
        let webhook = read.inspect_err(|error| {
            metrics::webhook(provider.name(), "not believed");
            tracing::warn!(%provider, error = %Chain(error), "webhook rejected");
        })?;
        let work = |transaction: Transaction| {
            let (webhook, command) = (&webhook, &command);
            async move { self.record_webhook(&transaction, webhook, command).await }
        };
        let outcome = self.stores.postgres.transaction("take webhook", work).await.inspect_err(|error| {
            metrics::webhook(provider.name(), "failed");
            if matches!(error, Error::PaymentNotFound { .. }) {
                tracing::error!(%provider, event_id = webhook.event_id, %error, "webhook names an unknown payment, refusing it");
            }
        })?;
        match outcome {
            WebhookOutcome::Duplicate => {
                metrics::webhook(provider.name(), "duplicate");
                Ok(true)
            }
            WebhookOutcome::Recorded(recorded) => {
                metrics::webhook(provider.name(), "taken");
                if let Some(recorded) = recorded {
                    self.changes.publish(*recorded).await;
                }
                Ok(false)
            }
        }
    }

    async fn record_webhook(
        &self,
        transaction: &Transaction,
        webhook: &Webhook,
        command: &HandleWebhook,
    ) -> Result<WebhookOutcome, Error> {
        let new = NewWebhook {
            provider: command.provider,
            event_id: &webhook.event_id,
            event_type: &webhook.event_type,
            payment_id: webhook.update.as_ref().map(|update| update.payment_id),
            receive_time: command.receive_time,
        };
        if !webhooks::insert(transaction, &new).await? {
            return Ok(WebhookOutcome::Duplicate);
        }
        let Some(update) = &webhook.update else { return Ok(WebhookOutcome::Recorded(None)) };
        let recorded =
            self.changes.record_provider_update(transaction, update.payment_id, &update.update).await?;
        // A provider may report on its own payments only. The error rolls the transaction back.
        if recorded.payment.provider != command.provider {
            return Err(WebhookError::Malformed("it names another provider's payment").into());
        }
        Ok(WebhookOutcome::Recorded(Some(Box::new(recorded))))
    }
}
