//! Webhooks of payment providers: forwards the raw body and headers to Payment, which verifies and parses them. A provider
//! retries until it receives a 200, so the gateway responds with 200 only after Payment has stored the webhook.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, State, rejection::BytesRejection},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};
use onsale_kit::{client::Channel, deadline::Deadline, error::Reason};
use onsale_proto::payment::v1::{
    ErrorReason, HandleWebhookRequest, Provider, WebhookHeader,
    payment_internal_service_client::PaymentInternalServiceClient,
};
use onsale_types::Clock;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::limits::refuse;
use crate::config::HttpConfig;

/// Limit of `HandleWebhookRequest.headers` in the contract.
const HEADERS_MAX: usize = 50;

/// Headers that are not forwarded: credentials, and headers added by proxies. No provider signs them.
const DROPPED: [&str; 8] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "connection",
    "te",
    "traceparent",
    "tracestate",
    "x-request-id",
];
/// Prefixes of further headers that are not forwarded.
const DROPPED_PREFIXES: [&str; 3] = ["x-envoy-", "x-forwarded-", "x-onsale-"];

/// Forwards webhooks to Payment.
#[derive(Clone)]
pub(super) struct Webhooks {
    payment: PaymentInternalServiceClient<Channel>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

impl Webhooks {
    /// `payment` must add the token of the gateway, because a provider has none.
    pub(super) fn new(payment: Channel, clock: Arc<dyn Clock>, config: &HttpConfig) -> Self {
        Self { payment: PaymentInternalServiceClient::new(payment), clock, timeout: config.request_timeout }
    }

    async fn forward(&self, request: HandleWebhookRequest) -> Result<(), Status> {
        let mut payment = self.payment.clone();
        Deadline::after(self.timeout).scope(payment.handle_webhook(request)).await.map(drop)
    }
}

/// Handles `POST /webhooks/<provider>`.
pub(super) async fn receive(
    State(webhooks): State<Webhooks>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Some(provider) = provider_named(&provider) else {
        return refuse(StatusCode::NOT_FOUND, "unknown provider");
    };
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), rejection.body_text()),
    };
    let headers: Vec<_> = headers.iter().filter(|(name, _)| is_forwarded(name)).map(webhook_header).collect();
    if headers.len() > HEADERS_MAX {
        return refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers");
    }
    let request = HandleWebhookRequest {
        provider: provider.into(),
        headers,
        body: body.into(),
        receive_time: Some(onsale_proto::convert::time_to_pb(webhooks.clock.now())),
    };
    match webhooks.forward(request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(status) => refusal(provider, &status),
    }
}

/// Returns the provider with this lower-case name.
fn provider_named(name: &str) -> Option<Provider> {
    [Provider::Stripe, Provider::Paystack, Provider::Sandbox]
        .into_iter()
        .find(|provider| provider.as_str_name().trim_start_matches("PROVIDER_").to_ascii_lowercase() == name)
}

fn is_forwarded(name: &HeaderName) -> bool {
    !DROPPED.contains(&name.as_str())
        && !DROPPED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
}

fn webhook_header((name, value): (&HeaderName, &http::HeaderValue)) -> WebhookHeader {
    WebhookHeader { name: name.as_str().to_owned(), value: value.as_bytes().to_vec() }
}

/// Returns the response to a provider whose webhook was not stored. Only errors that a retry cannot fix get a 4xx status; all
/// others get a 503, so that the provider retries.
fn refusal(provider: Provider, status: &Status) -> Response {
    let reason = status.get_details_error_info().map(|info| info.reason).unwrap_or_default();
    let is = |known: ErrorReason| reason == Reason::from_proto(known.as_str_name()).as_str();
    let is_forged = is(ErrorReason::WebhookSignatureInvalid) || is(ErrorReason::WebhookTooOld);
    let http_status = match status.code() {
        Code::PermissionDenied if is_forged => StatusCode::FORBIDDEN,
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::FailedPrecondition if is(ErrorReason::ProviderNotConfigured) => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    tracing::warn!(?provider, code = ?status.code(), reason, status = http_status.as_u16(), "webhook not stored, error returned to the provider");
    let message = if http_status == StatusCode::SERVICE_UNAVAILABLE { "try again" } else { status.message() };
    refuse(http_status, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_is_found_only_by_its_lower_case_name() {
        assert_eq!(provider_named("stripe"), Some(Provider::Stripe));
        assert_eq!(provider_named("sandbox"), Some(Provider::Sandbox));
        for name in ["", "Stripe", "unspecified", "provider_stripe", "stripe/", "stripe "] {
            assert_eq!(provider_named(name), None, "{name:?}");
        }
    }
}
