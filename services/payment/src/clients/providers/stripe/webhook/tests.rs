//! Verification and parsing of webhooks.

use onsale_types::PaymentId;
use proptest::prelude::*;

use super::*;

const SECRET: &str = "whsec_test";
const NOW: i64 = 1_700_000_000;
const TOLERANCE: Duration = Duration::from_secs(300);

fn signature(secret: &str, time: i64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, &[format!("{time}.").as_bytes(), body].concat());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_with(header: &str, body: &[u8]) -> Result<Webhook, WebhookError> {
    let headers = [(SIGNATURE_HEADER.to_owned(), header.as_bytes().to_vec())];
    read(&RawWebhook { headers: &headers, body }, SECRET, TOLERANCE, Timestamp::from_secs(NOW))
}

fn read_signed(body: &[u8]) -> Result<Webhook, WebhookError> {
    read_with(&format!("t={NOW},v1={}", signature(SECRET, NOW, body)), body)
}

fn event(kind: &str, object: &serde_json::Value) -> Vec<u8> {
    let event = serde_json::json!({ "id": "evt_1", "type": kind, "data": { "object": object } });
    event.to_string().into_bytes()
}

#[test]
fn one_valid_signature_among_several_is_enough() {
    let body = event("customer.created", &serde_json::json!({}));
    let valid = signature(SECRET, NOW, &body);
    let old = signature("whsec_old", NOW, &body);
    assert!(read_with(&format!("t={NOW},v1={old},v1={valid},v0=00"), &body).is_ok());
    assert_eq!(read_with(&format!("t={NOW},v1={old}"), &body), Err(WebhookError::Signature));
    assert_eq!(read_with(&format!("t={NOW},v0={valid}"), &body), Err(WebhookError::Signature));
    assert_eq!(read_with("", &body), Err(WebhookError::Signature));
    let headers = [];
    let unsigned = RawWebhook { headers: &headers, body: &body };
    assert_eq!(read(&unsigned, SECRET, TOLERANCE, Timestamp::from_secs(NOW)), Err(WebhookError::Signature));
}

#[test]
fn signature_covers_its_time_and_expires() {
    let body = event("customer.created", &serde_json::json!({}));
    for (time, expected) in [(NOW - 300, None), (NOW + 300, None), (NOW - 301, Some(WebhookError::TooOld))] {
        let header = format!("t={time},v1={}", signature(SECRET, time, &body));
        assert_eq!(read_with(&header, &body).err(), expected, "{time}");
    }
    let moved = format!("t={NOW},v1={}", signature(SECRET, NOW - 10_000, &body));
    assert_eq!(read_with(&moved, &body), Err(WebhookError::Signature));
}

#[test]
fn complete_session_that_is_unpaid_implies_no_update() {
    let id = PaymentId::generate();
    let mut session = serde_json::json!({
        "id": "cs_1", "status": "complete", "payment_status": "unpaid", "payment_intent": "pi_1",
        "amount_total": 4_000, "currency": "eur", "metadata": { "payment_id": id.to_string() },
    });
    assert_eq!(read_signed(&event("checkout.session.completed", &session)).unwrap().update, None);
    session["payment_status"] = "paid".into();
    let paid = read_signed(&event("checkout.session.completed", &session)).unwrap().update.unwrap();
    assert_eq!(paid.payment_id, id);
    assert!(matches!(paid.update, ProviderUpdate::Paid { charge, .. } if charge == "pi_1"));
    session["amount_total"] = serde_json::Value::Null;
    let malformed = read_signed(&event("checkout.session.completed", &session));
    assert!(matches!(malformed, Err(WebhookError::Malformed(_))));
}

#[test]
fn event_about_no_payment_of_ours_implies_no_update() {
    let session = serde_json::json!({ "id": "cs_1", "status": "expired", "metadata": null });
    assert_eq!(read_signed(&event("checkout.session.expired", &session)).unwrap().update, None);
    assert_eq!(read_signed(&event("invoice.paid", &session)).unwrap().update, None);
}

proptest! {
    #[test]
    fn changed_body_is_rejected(change in any::<u8>(), position: prop::sample::Index) {
        let body = event("checkout.session.expired", &serde_json::json!({ "id": "cs_1" }));
        let header = format!("t={NOW},v1={}", signature(SECRET, NOW, &body));
        let mut changed = body.clone();
        let position = position.index(changed.len());
        changed[position] = change;
        prop_assume!(changed != body);
        prop_assert_eq!(read_with(&header, &changed), Err(WebhookError::Signature));
    }

    #[test]
    fn header_never_causes_a_panic(header in ".{0,80}", body in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_with(&header, &body).is_err());
    }

    #[test]
    fn signed_body_never_causes_a_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_signed(&body);
    }
}
