//! JSON messages for systems outside the mesh, on the Redis channel `queue_events`. They call the customer `user` and the event
//! `match`.

use onsale_types::Named as _;
use serde_json::json;

use crate::domain::event::ExternalMessage;

/// Encodes a message.
pub(crate) fn encode(message: &ExternalMessage<'_>) -> String {
    let message = match message {
        ExternalMessage::TurnGranted { entry, token } => json!({
            "event": "queue.turn_granted",
            "user_id": entry.customer_id,
            "match_id": entry.event_id,
            "session_token": token,
            "expires_at": entry.turn.map(|turn| turn.expire_time.to_string()),
        }),
        ExternalMessage::Expired { entry } => json!({
            "event": "queue.expired",
            "user_id": entry.customer_id,
            "match_id": entry.event_id,
            "reason": entry.expire_reason.map(|reason| reason.name()),
        }),
    };
    message.to_string()
}
