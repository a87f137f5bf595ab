//! Webhooks of payment providers: the raw body and its headers go to Payment, which alone knows what they mean. A provider
//! sends again until it hears 200, so that is said only after Payment has stored it.

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

/// As the contract has it.
const HEADERS_MAX: usize = 50;

/// Credentials, and what was added on the way: no provider signs those.
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
const DROPPED_PREFIXES: [&str; 3] = ["x-envoy-", "x-forwarded-", "x-onsale-"];

/// Takes webhooks.
#[derive(Clone)]
pub(super) struct Webhooks {
    payment: PaymentInternalServiceClient<Channel>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

impl Webhooks {
    /// `payment` must carry our own token: the provider has none.
    pub(super) fn new(payment: Channel, clock: Arc<dyn Clock>, config: &HttpConfig) -> Self {
        Self { payment: PaymentInternalServiceClient::new(payment), clock, timeout: config.request_timeout }
    }

    async fn forward(&self, request: HandleWebhookRequest) -> Result<(), Status> {
        let mut payment = self.payment.clone();
        Deadline::after(self.timeout).scope(payment.handle_webhook(request)).await.map(drop)
    }
}

/// `POST /webhooks/<provider>`.
pub(super) async fn receive(
    State(webhooks): State<Webhooks>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Some(provider) = provider_named(&provider) else {
        return refuse(StatusCode::NOT_FOUND, "there is no such provider");
    };
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), rejection.body_text()),
    };
    let headers: Vec<_> = headers.iter().filter(|(name, _)| is_forwarded(name)).map(webhook_header).collect();
    if headers.len() > HEADERS_MAX {
        return refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers");
    }
    let (seconds, nanos) = webhooks.clock.now().to_seconds_and_nanos();
    let request = HandleWebhookRequest {
        provider: provider.into(),
        headers,
        body: body.into(),
        receive_time: Some(prost_types::Timestamp { seconds, nanos }),
    };
    match webhooks.forward(request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(status) => refusal(provider, &status),
    }
}

/// The provider with this name, in lower case as paths are.
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

/// What the provider is told. Only what another attempt cannot mend is refused for good.
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
    tracing::warn!(?provider, code = ?status.code(), reason, status = http_status.as_u16(), "a webhook was not taken");
    let sentence =
        if http_status == StatusCode::SERVICE_UNAVAILABLE { "try again" } else { status.message() };
    refuse(http_status, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_is_named_in_lower_case_and_by_its_own_name_only() {
        assert_eq!(provider_named("stripe"), Some(Provider::Stripe));
        assert_eq!(provider_named("sandbox"), Some(Provider::Sandbox));
        for name in ["", "Stripe", "unspecified", "provider_stripe", "stripe/", "stripe "] {
            assert_eq!(provider_named(name), None, "{name:?}");
        }
    }
}
