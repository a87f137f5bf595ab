//! Webhooks: the signature first, then its time, then what is said. Nothing is parsed that is not signed.

use std::time::Duration;

use onsale_types::Timestamp;
use ring::hmac;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{News, RawWebhook, Webhook, WebhookError},
    objects::{Intent, Session},
};
use crate::domain::{Fact, FailureReason};

const SIGNATURE_HEADER: &str = "stripe-signature";
/// While a secret is replaced there are two; more are not looked at.
const SIGNATURES_MAX: usize = 8;
/// As the inbox keeps them.
const EVENT_ID_BYTES_MAX: usize = 255;

#[derive(Deserialize)]
struct Event {
    id: String,
    r#type: String,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    object: Value,
}

/// Reads a webhook signed with `secret` at a time within `tolerance` of `now`.
pub(super) fn read(
    raw: &RawWebhook<'_>,
    secret: &str,
    tolerance: Duration,
    now: Timestamp,
) -> Result<Webhook, WebhookError> {
    let signed_at = verify(raw, secret)?;
    let distance = now.saturating_since(signed_at).max(signed_at.saturating_since(now));
    if distance > tolerance {
        return Err(WebhookError::TooOld);
    }
    let event: Event =
        serde_json::from_slice(raw.body).map_err(|_malformed| WebhookError::Malformed("no event"))?;
    if event.id.is_empty() || event.id.len() > EVENT_ID_BYTES_MAX || event.r#type.len() > EVENT_ID_BYTES_MAX {
        return Err(WebhookError::Malformed("no event id"));
    }
    let news = news(&event.r#type, event.data.object)?;
    Ok(Webhook { event_id: event.id, event_type: event.r#type, news })
}

/// The time of a good signature over the body.
fn verify(raw: &RawWebhook<'_>, secret: &str) -> Result<Timestamp, WebhookError> {
    let header = raw.header(SIGNATURE_HEADER).and_then(|value| std::str::from_utf8(value).ok());
    let parts: Vec<(&str, &str)> =
        header.ok_or(WebhookError::Signature)?.split(',').filter_map(|part| part.split_once('=')).collect();
    let time = parts.iter().find(|(name, _)| *name == "t").map(|(_, value)| *value);
    let time = time.ok_or(WebhookError::Signature)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut signed = format!("{time}.").into_bytes();
    signed.extend_from_slice(raw.body);
    let signatures = parts.iter().filter(|(name, _)| *name == "v1").take(SIGNATURES_MAX);
    let is_good = signatures
        .filter_map(|(_, value)| from_hex(value))
        .any(|signature| hmac::verify(&key, &signed, &signature).is_ok());
    if !is_good {
        return Err(WebhookError::Signature);
    }
    let seconds = time.parse().map_err(|_malformed| WebhookError::Malformed("no time"))?;
    Ok(Timestamp::from_secs(seconds))
}

/// What an event means for a payment of ours.
fn news(kind: &str, object: Value) -> Result<Option<News>, WebhookError> {
    let (payment_id, fact) = match kind {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            let session = session(object)?;
            (session.payment_id(), session.fact().map_err(WebhookError::Malformed)?)
        }
        "checkout.session.async_payment_failed" => {
            (session(object)?.payment_id(), Some(Fact::Ended { reason: FailureReason::Declined }))
        }
        "checkout.session.expired" => {
            (session(object)?.payment_id(), Some(Fact::Ended { reason: FailureReason::Expired }))
        }
        "payment_intent.canceled" => {
            let intent: Intent = serde_json::from_value(object)
                .map_err(|_malformed| WebhookError::Malformed("no payment intent"))?;
            (intent.payment_id(), Some(Fact::Ended { reason: intent.end() }))
        }
        _ => (None, None),
    };
    Ok(payment_id.zip(fact).map(|(payment_id, fact)| News { payment_id, fact }))
}

fn session(object: Value) -> Result<Session, WebhookError> {
    serde_json::from_value(object).map_err(|_malformed| WebhookError::Malformed("no session"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    digits?
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from((high << 4) | low).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
