//! Client of Stripe's API: Checkout Sessions, refunds and signed webhooks. The sandbox provider has the same API.

mod objects;
mod webhook;

use std::time::Duration;

use onsale_kit::{config::Secret, error::Chain};
use onsale_types::Timestamp;
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

use self::objects::{ALREADY_REFUNDED, ErrorResponse, Refund, Session};
use super::{PaymentProvider, ProviderError, RawWebhook, Webhook, WebhookError};
use crate::{
    domain::{Claim, Payment, ProviderUpdate},
    metrics,
};

/// Longest response body that is read. The objects we request are far smaller.
const RESPONSE_BYTES_MAX: usize = 1024 * 1024;
/// Stripe's limit for the name of a product.
const NAME_CHARS_MAX: usize = 250;

#[derive(Clone, Debug)]
pub(crate) struct StripeSettings {
    /// Metric label of the provider.
    pub(crate) name: &'static str,
    /// Base URL, without a slash at the end.
    pub(crate) url: String,
    /// API key of our merchant account.
    pub(crate) secret_key: Secret,
    /// HMAC secret of the webhooks' signatures.
    pub(crate) webhook_secret: Secret,
    /// Largest accepted difference between a webhook's signed time and ours.
    pub(crate) webhook_tolerance: Duration,
    pub(crate) connect_timeout: Duration,
    /// Timeout of a whole call.
    pub(crate) timeout: Duration,
}

#[derive(Debug)]
pub(crate) struct Stripe {
    settings: StripeSettings,
    http: reqwest::Client,
}

impl Stripe {
    /// Builds the client without connecting.
    pub(crate) fn new(settings: StripeSettings) -> Result<Self, reqwest::Error> {
        onsale_kit::tls::install_provider();
        let http = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.timeout)
            // The API never redirects, and a redirect must not receive the key.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { settings, http })
    }

    fn session_url(&self, reference: &str) -> String {
        format!("{}/v1/checkout/sessions/{reference}", self.settings.url)
    }

    /// Sends a request, reads its response and measures the call.
    async fn call<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
    ) -> Result<T, ProviderError> {
        let measured = metrics::ProviderCall::start(self.settings.name, attempt);
        let result = self.attempt(attempt, request).await;
        measured.end(result.as_ref().err().map_or("ok", ProviderError::outcome));
        result
    }

    async fn attempt<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
    ) -> Result<T, ProviderError> {
        let response =
            request.bearer_auth(self.settings.secret_key.expose()).send().await.map_err(|error| {
                let message = Chain(&error).to_string();
                // Without a connection nothing was sent.
                if error.is_connect() {
                    ProviderError::Unavailable { attempt, message }
                } else {
                    ProviderError::Unknown { attempt, message }
                }
            })?;
        let status = response.status();
        let body = read(response).await.map_err(|message| ProviderError::Unknown { attempt, message })?;
        if !status.is_success() {
            return Err(refusal(attempt, status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| ProviderError::Unknown { attempt, message: error.to_string() })
    }
}

#[tonic::async_trait]
impl PaymentProvider for Stripe {
    async fn open_session(&self, payment: &Payment, claim: &Claim) -> Result<ProviderUpdate, ProviderError> {
        const ATTEMPT: &str = "open a session";
        let request = self
            .http
            .post(format!("{}/v1/checkout/sessions", self.settings.url))
            .header("idempotency-key", format!("payment-{}", payment.id))
            .form(&session_form(payment, claim));
        let session: Session = self.call(ATTEMPT, request).await?;
        session.opened().ok_or_else(|| ProviderError::Unknown {
            attempt: ATTEMPT,
            message: "the session has no page".to_owned(),
        })
    }

    async fn poll_session(&self, reference: &str) -> Result<Option<ProviderUpdate>, ProviderError> {
        const ATTEMPT: &str = "look at a session";
        let request = self.http.get(self.session_url(reference)).query(&[("expand[]", "payment_intent")]);
        let session: Session = self.call(ATTEMPT, request).await?;
        session
            .update()
            .map_err(|message| ProviderError::Unknown { attempt: ATTEMPT, message: message.to_owned() })
    }

    async fn expire_session(&self, reference: &str) -> Result<Option<ProviderUpdate>, ProviderError> {
        let request = self.http.post(format!("{}/expire", self.session_url(reference)));
        match self.call::<Session>("expire a session", request).await {
            // A refusal means that the session has ended already. Poll it, because this response lacks the expanded intent.
            Ok(_) | Err(ProviderError::Refused { .. }) => self.poll_session(reference).await,
            Err(error) => Err(error),
        }
    }

    async fn refund_payment(&self, payment: &Payment) -> Result<(), ProviderError> {
        const ATTEMPT: &str = "refund a payment";
        let (Some(charge), Some(refund)) = (&payment.charge, &payment.refund) else {
            let message = "the payment has no charge or no refund".to_owned();
            return Err(ProviderError::Refused { attempt: ATTEMPT, code: None, message });
        };
        let request = self
            .http
            .post(format!("{}/v1/refunds", self.settings.url))
            .header("idempotency-key", format!("refund-{}", refund.id))
            .form(&[
                ("payment_intent", charge.clone()),
                ("metadata[payment_id]", payment.id.to_string()),
                ("metadata[refund_id]", refund.id.to_string()),
            ]);
        match self.call::<Refund>(ATTEMPT, request).await {
            Ok(refund) if refund.is_accepted() => Ok(()),
            Ok(_) => {
                Err(ProviderError::Unknown { attempt: ATTEMPT, message: "the refund failed".to_owned() })
            }
            // Stripe deleted the idempotency key (after 24 h at the earliest), or a person refunded by hand: the money is back.
            Err(ProviderError::Refused { code: Some(code), .. }) if code == ALREADY_REFUNDED => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read_webhook(&self, raw: &RawWebhook<'_>, now: Timestamp) -> Result<Webhook, WebhookError> {
        webhook::read(raw, self.settings.webhook_secret.expose(), self.settings.webhook_tolerance, now)
    }
}

/// Returns the parameters of a new session. They are the same for every attempt at a payment, because Stripe refuses an idempotency
/// key that is reused with other parameters.
fn session_form(payment: &Payment, claim: &Claim) -> Vec<(&'static str, String)> {
    let name: String = claim.event.name.chars().take(NAME_CHARS_MAX).collect();
    let payment_id = payment.id.to_string();
    let (expires_at, _nanos) = payment.expire_time.to_seconds_and_nanos();
    let mut form = vec![
        ("mode", "payment".to_owned()),
        ("client_reference_id", payment_id.clone()),
        ("metadata[payment_id]", payment_id.clone()),
        ("payment_intent_data[metadata][payment_id]", payment_id),
        ("line_items[0][quantity]", "1".to_owned()),
        ("line_items[0][price_data][currency]", payment.amount.currency().code().to_lowercase()),
        ("line_items[0][price_data][unit_amount]", payment.amount.amount_minor().to_string()),
        ("line_items[0][price_data][product_data][name]", name),
        ("success_url", payment.return_url.clone()),
        ("cancel_url", payment.cancel_url.clone()),
        ("expires_at", expires_at.to_string()),
    ];
    if !claim.buyer_email.is_empty() {
        form.push(("customer_email", claim.buyer_email.clone()));
    }
    form
}

/// Reads a response body of at most [`RESPONSE_BYTES_MAX`].
async fn read(mut response: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Chain(&error).to_string())? {
        if body.len().saturating_add(chunk.len()) > RESPONSE_BYTES_MAX {
            return Err("the response is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn refusal(attempt: &'static str, status: StatusCode, body: &[u8]) -> ProviderError {
    let error = serde_json::from_slice::<ErrorResponse>(body).unwrap_or_default();
    let message = format!("{} {error}", status.as_u16());
    match status {
        StatusCode::NOT_FOUND => ProviderError::Missing { attempt },
        // Our key is wrong or lacks a permission. A mistake of an operator must not fail payments.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            tracing::error!(attempt, message, "provider rejected our API key, retrying");
            ProviderError::Unavailable { attempt, message }
        }
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ProviderError::Unavailable { attempt, message }
        }
        status if status.is_client_error() => {
            ProviderError::Refused { attempt, code: error.into_code(), message }
        }
        _ => ProviderError::Unknown { attempt, message },
    }
}
