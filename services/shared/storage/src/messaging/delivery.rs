//! One stream entry that was delivered to a consumer.

use uuid::Uuid;

use super::retention::position;
use super::{Message, MessageError};
use crate::redis::{Entry, StreamId};

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) id: StreamId,
    /// Ordering key: deliveries with the same key are handled in order.
    pub(super) key: String,
    pub(super) envelope: Vec<u8>,
    /// Id of the event from the entry; derived from topic and position if the entry has none.
    pub(super) event_id: Uuid,
    /// Deliveries that ended without an acknowledgement because the consumer crashed.
    pub(super) crash_count: u32,
}

impl Delivery {
    /// Reads `entry` of `topic`. A malformed entry gives a delivery that can still go to the dead letters.
    pub(super) fn read(topic: &str, entry: &Entry, crash_count: u32) -> Self {
        let text = |name| entry.field(name).and_then(|bytes| std::str::from_utf8(bytes).ok());
        let event_id = text("id").and_then(|id| Uuid::parse_str(id).ok()).unwrap_or_else(|| {
            let place = format!("{topic}/{}", entry.id.millis);
            Uuid::new_v5(&Uuid::NAMESPACE_OID, place.as_bytes())
        });
        Self {
            id: entry.id,
            key: text("key").unwrap_or_default().to_owned(),
            envelope: entry.field("envelope").unwrap_or_default().to_vec(),
            event_id,
            crash_count,
        }
    }

    pub(super) fn position(&self) -> i64 {
        position(self.id)
    }

    /// Decodes the event. Its id must equal the entry's, because the inbox uses that one.
    pub(super) fn message(&self) -> Result<Message, MessageError> {
        let message = Message::read(self.position(), &self.envelope)?;
        if message.id != self.event_id {
            return Err(MessageError::Field { field: "id" });
        }
        Ok(message)
    }
}
