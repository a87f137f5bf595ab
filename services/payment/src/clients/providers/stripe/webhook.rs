//! Stripe's webhooks: verifies the signature, then the age, and only then parses the body.

use std::time::Duration;

use onsale_types::Timestamp;
use ring::hmac;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::{RawWebhook, Webhook, WebhookError, WebhookUpdate},
    objects::{Intent, Session},
};
use crate::domain::{FailureReason, ProviderUpdate};

const SIGNATURE_HEADER: &str = "stripe-signature";
/// Signatures that are checked at most. Stripe sends two while a secret is rotated.
const SIGNATURES_MAX: usize = 8;
/// Longest event id and event type that are accepted.
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

/// Reads a webhook that was signed with `secret` at most `tolerance` before or after `now`.
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
    let update = webhook_update(&event.r#type, event.data.object)?;
    Ok(Webhook { event_id: event.id, event_type: event.r#type, update })
}

/// Returns the signed time if one of the signatures over time and body is valid.
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
    let is_valid = signatures
        .filter_map(|(_, value)| from_hex(value))
        .any(|signature| hmac::verify(&key, &signed, &signature).is_ok());
    if !is_valid {
        return Err(WebhookError::Signature);
    }
    let seconds = time.parse().map_err(|_malformed| WebhookError::Malformed("no time"))?;
    Ok(Timestamp::from_secs(seconds))
}

/// Returns the update that an event implies, or `None` for other types of events and objects that are not ours.
fn webhook_update(event_type: &str, object: Value) -> Result<Option<WebhookUpdate>, WebhookError> {
    let (payment_id, update) = match event_type {
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => {
            let session = session(object)?;
            (session.payment_id(), session.update().map_err(WebhookError::Malformed)?)
        }
        "checkout.session.async_payment_failed" => {
            (session(object)?.payment_id(), Some(ProviderUpdate::Ended { reason: FailureReason::Declined }))
        }
        "checkout.session.expired" => {
            (session(object)?.payment_id(), Some(ProviderUpdate::Ended { reason: FailureReason::Expired }))
        }
        "payment_intent.canceled" => {
            let intent: Intent = serde_json::from_value(object)
                .map_err(|_malformed| WebhookError::Malformed("no payment intent"))?;
            (intent.payment_id(), Some(ProviderUpdate::Ended { reason: intent.failure_reason() }))
        }
        _ => (None, None),
    };
    Ok(payment_id.zip(update).map(|(payment_id, update)| WebhookUpdate { payment_id, update }))
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
