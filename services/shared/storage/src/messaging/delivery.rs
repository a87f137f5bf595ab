//! One entry of a stream in the hands of a consumer.

use uuid::Uuid;

use super::retention::position;
use super::{Message, MessageError};
use crate::redis::{Entry, StreamId};

/// An entry, and how often it has been handed out.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) id: StreamId,
    /// What keeps it in order with others.
    pub(super) key: String,
    pub(super) envelope: Vec<u8>,
    /// The event's id as the entry says it; made from its place if it says none.
    pub(super) event_id: Uuid,
    /// Hand-outs that finished without an acknowledgement: whoever had it died.
    pub(super) crash_count: u32,
}

impl Delivery {
    /// Reads `entry` of `topic`; whatever is in it, the result can at least be buried.
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

    /// The event in it. Its id must be the entry's: the inbox goes by it.
    pub(super) fn message(&self) -> Result<Message, MessageError> {
        let message = Message::read(self.position(), &self.envelope)?;
        if message.id != self.event_id {
            return Err(MessageError::Field { field: "id" });
        }
        Ok(message)
    }
}
