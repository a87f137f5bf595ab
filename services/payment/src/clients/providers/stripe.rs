//! A client of the dialect of Stripe: Checkout Sessions, refunds, signed webhooks. The sandbox speaks it too.

mod objects;
mod webhook;

use std::time::Duration;

use onsale_kit::{config::Secret, error::Chain};
use onsale_types::Timestamp;
use reqwest::{RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

use self::objects::{ALREADY_REFUNDED, ErrorAnswer, Refund, Session};
use super::{PaymentProvider, ProviderError, RawWebhook, Webhook, WebhookError};
use crate::{
    domain::{Claim, Fact, Payment},
    metrics,
};

/// More than any answer we ask for has.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// What Stripe takes as the name of a product.
const NAME_CHARS_MAX: usize = 250;

/// How to reach one provider of this dialect.
#[derive(Clone, Debug)]
pub struct StripeSettings {
    /// What its metrics are called.
    pub name: &'static str,
    /// Base URL, without a slash at the end.
    pub url: String,
    /// The merchant's key.
    pub secret_key: Secret,
    /// What its webhooks are signed with.
    pub webhook_secret: Secret,
    /// How far a webhook's time may be from ours.
    pub webhook_tolerance: Duration,
    /// How long a connection may take, and a whole call.
    pub connect_timeout: Duration,
    /// As above.
    pub timeout: Duration,
}

/// Calls one provider of this dialect.
#[derive(Debug)]
pub struct Stripe {
    settings: StripeSettings,
    http: reqwest::Client,
}

impl Stripe {
    /// Makes the client; nothing is called yet.
    pub fn new(settings: StripeSettings) -> Result<Self, reqwest::Error> {
        onsale_kit::tls::install_provider();
        let http = reqwest::Client::builder()
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.timeout)
            // An API does not redirect, and the key must not follow.
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { settings, http })
    }

    fn session_url(&self, reference: &str) -> String {
        format!("{}/v1/checkout/sessions/{reference}", self.settings.url)
    }

    /// Makes one call and reads its answer, or why there is none.
    async fn call<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
    ) -> Result<T, ProviderError> {
        let measured = metrics::ProviderCall::begin(self.settings.name, attempt);
        let result = self.attempt(attempt, request).await;
        measured.end(result.as_ref().err());
        result
    }

    async fn attempt<T: DeserializeOwned>(
        &self,
        attempt: &'static str,
        request: RequestBuilder,
    ) -> Result<T, ProviderError> {
        let answer =
            request.bearer_auth(self.settings.secret_key.expose()).send().await.map_err(|error| {
                let message = Chain(&error).to_string();
                // Without a connection nothing was sent.
                if error.is_connect() {
                    ProviderError::Unavailable { attempt, message }
                } else {
                    ProviderError::Unknown { attempt, message }
                }
            })?;
        let status = answer.status();
        let body = read(answer).await.map_err(|message| ProviderError::Unknown { attempt, message })?;
        if !status.is_success() {
            return Err(refusal(attempt, status, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| ProviderError::Unknown { attempt, message: error.to_string() })
    }
}

#[tonic::async_trait]
impl PaymentProvider for Stripe {
    async fn open(&self, payment: &Payment, claim: &Claim) -> Result<Fact, ProviderError> {
        const ATTEMPT: &str = "open a session";
        let request = self
            .http
            .post(format!("{}/v1/checkout/sessions", self.settings.url))
            .header("idempotency-key", format!("payment-{}", payment.id))
            .form(&session_form(payment, claim));
        let session: Session = self.call(ATTEMPT, request).await?;
        session.opened().ok_or_else(|| ProviderError::Unknown {
            attempt: ATTEMPT,
            message: "no page to pay on".to_owned(),
        })
    }

    async fn look(&self, reference: &str) -> Result<Option<Fact>, ProviderError> {
        const ATTEMPT: &str = "look at a session";
        let request = self.http.get(self.session_url(reference)).query(&[("expand[]", "payment_intent")]);
        let session: Session = self.call(ATTEMPT, request).await?;
        session
            .fact()
            .map_err(|message| ProviderError::Unknown { attempt: ATTEMPT, message: message.to_owned() })
    }

    async fn close(&self, reference: &str) -> Result<Option<Fact>, ProviderError> {
        let request = self.http.post(format!("{}/expire", self.session_url(reference)));
        match self.call::<Session>("expire a session", request).await {
            // What it became in the end is asked for in full; a refusal means that it ended before.
            Ok(_) | Err(ProviderError::Refused { .. }) => self.look(reference).await,
            Err(error) => Err(error),
        }
    }

    async fn refund(&self, payment: &Payment) -> Result<(), ProviderError> {
        const ATTEMPT: &str = "refund a payment";
        let (Some(charge), Some(refund)) = (&payment.charge, &payment.refund) else {
            let message = "the payment has no money to give back".to_owned();
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
            // The key was forgotten, or somebody gave it back by hand: it went back, and that is what was asked for.
            Err(ProviderError::Refused { code: Some(code), .. }) if code == ALREADY_REFUNDED => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read_webhook(&self, raw: &RawWebhook<'_>, now: Timestamp) -> Result<Webhook, WebhookError> {
        webhook::read(raw, self.settings.webhook_secret.expose(), self.settings.webhook_tolerance, now)
    }
}

/// What a session is asked for with: the same for the same payment, always, as the idempotency key wants it.
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

/// Reads an answer's body, as long as it has a sensible length.
async fn read(mut answer: reqwest::Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| Chain(&error).to_string())? {
        if body.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
            return Err("the answer is too long".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn refusal(attempt: &'static str, status: StatusCode, body: &[u8]) -> ProviderError {
    let said = serde_json::from_slice::<ErrorAnswer>(body).unwrap_or_default();
    let message = format!("{} {said}", status.as_u16());
    match status {
        StatusCode::NOT_FOUND => ProviderError::Missing { attempt },
        // Our key is wrong or may not: a human's mistake, which must not end anybody's payment.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            tracing::error!(attempt, message, "provider does not accept our key");
            ProviderError::Unavailable { attempt, message }
        }
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            ProviderError::Unavailable { attempt, message }
        }
        status if status.is_client_error() => {
            ProviderError::Refused { attempt, code: said.into_code(), message }
        }
        _ => ProviderError::Unknown { attempt, message },
    }
}
