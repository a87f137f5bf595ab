//! The JSON that systems outside of the mesh hear on the channel `queue_events`. They say user and match where the mesh says
//! customer and event.

use serde_json::json;

use crate::domain::entry::Entry;

/// A customer's turn has come.
pub(crate) fn granted(entry: &Entry, token: &str) -> String {
    json!({
        "event": "queue.turn_granted",
        "user_id": entry.customer_id,
        "match_id": entry.event_id,
        "session_token": token,
        "expires_at": entry.turn.map(|turn| turn.expire_time.to_string()),
    })
    .to_string()
}

/// An entry ended without a purchase.
pub(crate) fn expired(entry: &Entry) -> String {
    json!({
        "event": "queue.expired",
        "user_id": entry.customer_id,
        "match_id": entry.event_id,
        "reason": entry.expire_reason.map(|reason| reason.name()),
    })
    .to_string()
}
