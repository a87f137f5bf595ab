//! Requests as they are understood: every field checked, all violations in one answer.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::payment::v1 as pb;
use onsale_types::{ClaimId, PaymentId, RequestId, Timestamp};

use super::read_time;
use crate::domain::{Provider, RefundReason};

const URL_CHARS_MAX: usize = 2_048;
const HEADERS_MAX: usize = 50;
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What `CreatePayment` asks for.
#[derive(Clone, Debug)]
pub struct CreatePayment {
    /// Names the wish.
    pub request_id: RequestId,
    /// What is to be paid.
    pub claim_id: ClaimId,
    /// Who is to take the money; `None`: the default.
    pub provider: Option<Provider>,
    /// Where the customer goes afterwards; `None`: our page.
    pub return_url: Option<String>,
    /// Where a customer goes who turns back; `None`: our page.
    pub cancel_url: Option<String>,
}

impl CreatePayment {
    /// Reads the request; URLs must be of one of `origins`.
    pub fn read(request: &pb::CreatePaymentRequest, origins: &[String]) -> Result<Self, InvalidFields> {
        let mut violations = Violations::new();
        let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
        let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
        let provider = match pb::Provider::try_from(request.provider) {
            Ok(provider) => read_provider(provider),
            Err(_unknown) => {
                violations.push("provider", "is not a known provider");
                None
            }
        };
        let return_url = url("return_url", &request.return_url, origins, &mut violations);
        let cancel_url = url("cancel_url", &request.cancel_url, origins, &mut violations);
        violations.build(|| {
            Some(Self { request_id: request_id?, claim_id: claim_id?, provider, return_url, cancel_url })
        })
    }
}

/// Which payment `GetPayment` asks for.
#[derive(Clone, Copy, Debug)]
pub enum Lookup {
    /// This one.
    Payment(PaymentId),
    /// The newest of a claim.
    Claim(ClaimId),
}

impl TryFrom<pb::GetPaymentRequest> for Lookup {
    type Error = InvalidFields;

    fn try_from(request: pb::GetPaymentRequest) -> Result<Self, InvalidFields> {
        use pb::get_payment_request::Lookup as PbLookup;
        let mut violations = Violations::new();
        let lookup = match violations.require("lookup", request.lookup) {
            Some(PbLookup::PaymentId(id)) => {
                violations.check("payment_id", PaymentId::parse(&id)).map(Self::Payment)
            }
            Some(PbLookup::ClaimId(id)) => violations.check("claim_id", ClaimId::parse(&id)).map(Self::Claim),
            None => None,
        };
        violations.build(|| lookup)
    }
}

/// What `RefundPayment` asks for.
#[derive(Clone, Copy, Debug)]
pub struct RefundPayment {
    /// Names the wish.
    pub request_id: RequestId,
    /// Which payment.
    pub payment_id: PaymentId,
    /// Why.
    pub reason: RefundReason,
}

impl RefundPayment {
    /// Reads the request; without `by_service` only an organizer's reasons may be given.
    pub fn read(request: &pb::RefundPaymentRequest, by_service: bool) -> Result<Self, InvalidFields> {
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
        if reason.is_some_and(|reason| !by_service && !reason.is_for_organizers()) {
            violations.push("reason", "is for services; an organizer gives EVENT_CANCELED or GOODWILL");
        }
        violations.build(|| Some(Self { request_id: request_id?, payment_id: payment_id?, reason: reason? }))
    }
}

/// A webhook on its way in.
#[derive(Clone, Debug)]
pub struct HandleWebhook {
    /// Whose.
    pub provider: Provider,
    /// Its headers; names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// Its body, byte for byte.
    pub body: Vec<u8>,
    /// When the gateway received it.
    pub receive_time: Timestamp,
}

impl TryFrom<pb::HandleWebhookRequest> for HandleWebhook {
    type Error = InvalidFields;

    fn try_from(request: pb::HandleWebhookRequest) -> Result<Self, InvalidFields> {
        let mut violations = Violations::new();
        let provider = violations.require("provider", read_provider(request.provider()));
        if request.headers.len() > HEADERS_MAX {
            violations.push("headers", format!("are more than {HEADERS_MAX}"));
        }
        if request.body.is_empty() || request.body.len() > BODY_BYTES_MAX {
            violations.push("body", format!("must have 1 to {BODY_BYTES_MAX} bytes"));
        }
        let receive_time = violations.require("receive_time", request.receive_time.and_then(read_time));
        let headers = request.headers.into_iter().map(|header| (header.name, header.value));
        let (headers, body) = (headers.collect(), request.body);
        violations.build(|| Some(Self { provider: provider?, headers, body, receive_time: receive_time? }))
    }
}

/// The id of a payment.
pub fn payment_id(text: &str) -> Result<PaymentId, InvalidFields> {
    let mut violations = Violations::new();
    let id = violations.check("payment_id", PaymentId::parse(text));
    violations.build(|| id)
}

fn read_provider(provider: pb::Provider) -> Option<Provider> {
    match provider {
        pb::Provider::Stripe => Some(Provider::Stripe),
        pb::Provider::Paystack => Some(Provider::Paystack),
        pb::Provider::Sandbox => Some(Provider::Sandbox),
        pb::Provider::Unspecified => None,
    }
}

/// A URL of one of `origins`; nothing when it is unset.
fn url(field: &str, text: &str, origins: &[String], violations: &mut Violations) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let is_long = text.chars().count() > URL_CHARS_MAX;
    let is_plain = text.chars().all(|character| character.is_ascii_graphic());
    // What follows an origin must end it: https://good.example.evil.example is another's.
    let follows = |origin: &String| {
        let rest = text.strip_prefix(origin.as_str())?;
        (rest.is_empty() || rest.starts_with(['/', '?', '#'])).then_some(())
    };
    if is_long || !is_plain || !origins.iter().any(|origin| follows(origin).is_some()) {
        violations
            .push(field, format!("must be a URL of an allowed origin, at most {URL_CHARS_MAX} characters"));
        return None;
    }
    Some(text.to_owned())
}
