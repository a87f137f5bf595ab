//! Requests of callers: every field is checked, and one error lists all violations.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::payment::v1 as pb;
use onsale_types::{ClaimId, PaymentId, RequestId};

use crate::domain::{CreatePayment, HandleWebhook, PaymentLookup, Provider, RefundPayment, RefundReason};

const URL_CHARS_MAX: usize = 2_048;
const HEADERS_MAX: usize = 50;
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// Reads the request. Its URLs must begin with one of `origins`.
pub(crate) fn create_payment(
    request: &pb::CreatePaymentRequest,
    origins: &[String],
) -> Result<CreatePayment, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let provider = match pb::Provider::try_from(request.provider) {
        Ok(provider) => provider_from_pb(provider),
        Err(_unknown) => {
            violations.push("provider", "is not a known provider");
            None
        }
    };
    let return_url = url("return_url", &request.return_url, origins, &mut violations);
    let cancel_url = url("cancel_url", &request.cancel_url, origins, &mut violations);
    violations.build(|| {
        let (request_id, claim_id) = (request_id?, claim_id?);
        Some(CreatePayment { request_id, claim_id, provider, return_url, cancel_url })
    })
}

pub(crate) fn get_payment(request: pb::GetPaymentRequest) -> Result<PaymentLookup, InvalidFields> {
    use pb::get_payment_request::Lookup;
    let mut violations = Violations::new();
    let lookup = match violations.require("lookup", request.lookup) {
        Some(Lookup::PaymentId(text)) => {
            violations.check("payment_id", PaymentId::parse(&text)).map(PaymentLookup::Payment)
        }
        Some(Lookup::ClaimId(text)) => {
            violations.check("claim_id", ClaimId::parse(&text)).map(PaymentLookup::Claim)
        }
        None => None,
    };
    violations.build(|| lookup)
}

pub(crate) fn watch_payment(request: &pb::WatchPaymentRequest) -> Result<PaymentId, InvalidFields> {
    let mut violations = Violations::new();
    let payment_id = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    violations.build(|| payment_id)
}

/// Reads the request. A caller that is no service may only give an organizer's reasons.
pub(crate) fn refund_payment(
    request: &pb::RefundPaymentRequest,
    is_service: bool,
) -> Result<RefundPayment, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let payment_id = violations.check("payment_id", PaymentId::parse(&request.payment_id));
    let reason = match request.reason() {
        pb::RefundReason::ClaimRejected => Some(RefundReason::ClaimRejected),
        pb::RefundReason::Duplicate => Some(RefundReason::Duplicate),
        pb::RefundReason::EventCanceled => Some(RefundReason::EventCanceled),
        pb::RefundReason::Goodwill => Some(RefundReason::Goodwill),
        pb::RefundReason::Unspecified => None,
    };
    let reason = violations.require("reason", reason);
    if reason.is_some_and(|reason| !is_service && !reason.is_for_organizers()) {
        violations.push("reason", "is for services; an organizer gives EVENT_CANCELED or GOODWILL");
    }
    violations
        .build(|| Some(RefundPayment { request_id: request_id?, payment_id: payment_id?, reason: reason? }))
}

pub(crate) fn handle_webhook(request: pb::HandleWebhookRequest) -> Result<HandleWebhook, InvalidFields> {
    let mut violations = Violations::new();
    let provider = violations.require("provider", provider_from_pb(request.provider()));
    if request.headers.len() > HEADERS_MAX {
        violations.push("headers", format!("must be at most {HEADERS_MAX}"));
    }
    if request.body.is_empty() || request.body.len() > BODY_BYTES_MAX {
        violations.push("body", format!("must have 1 to {BODY_BYTES_MAX} bytes"));
    }
    let receive_time = violations.require_time("receive_time", request.receive_time);
    let headers = request.headers.into_iter().map(|header| (header.name, header.value));
    let (headers, body) = (headers.collect(), request.body);
    violations
        .build(|| Some(HandleWebhook { provider: provider?, headers, body, receive_time: receive_time? }))
}

/// Returns `None` for the unspecified provider.
fn provider_from_pb(provider: pb::Provider) -> Option<Provider> {
    match provider {
        pb::Provider::Stripe => Some(Provider::Stripe),
        pb::Provider::Paystack => Some(Provider::Paystack),
        pb::Provider::Sandbox => Some(Provider::Sandbox),
        pb::Provider::Unspecified => None,
    }
}

/// Reads a URL that begins with one of `origins`. Returns `None` if it is unset, or after adding a violation.
fn url(field: &str, text: &str, origins: &[String], violations: &mut Violations) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let is_long = text.chars().count() > URL_CHARS_MAX;
    let is_plain = text.chars().all(|character| character.is_ascii_graphic());
    // The origin must end where the prefix ends: https://good.example.evil.example is another origin.
    let has_origin = |origin: &String| {
        let rest = text.strip_prefix(origin.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    };
    if is_long || !is_plain || !origins.iter().any(has_origin) {
        violations
            .push(field, format!("must be a URL of an allowed origin, at most {URL_CHARS_MAX} characters"));
        return None;
    }
    Some(text.to_owned())
}
