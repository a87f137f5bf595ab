//! Events before they are written to the outbox and after they were read from a stream.

use bytes::Bytes;
use onsale_proto::events::v1::Envelope;
use onsale_proto::{EventPayload, convert};
use onsale_types::Timestamp;
use prost::Message as _;
use uuid::Uuid;

/// Maximum size of a payload, from the contract (2 MiB).
const PAYLOAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Event that is ready to be appended to the outbox.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub(super) topic: &'static str,
    pub(super) payload_type: &'static str,
    pub(super) key: String,
    pub(super) payload: Bytes,
}

impl NewEvent {
    /// Creates an event about `key`. Events with the same key and topic are published in the order in which they were
    /// written; [`Consumer`](super::Consumer) documents the order of handling.
    #[must_use]
    pub fn new<P: EventPayload>(key: impl ToString, payload: &P) -> Self {
        Self {
            topic: P::TOPIC,
            payload_type: P::TYPE,
            key: key.to_string(),
            payload: payload.encode_to_vec().into(),
        }
    }

    pub(super) fn envelope(&self, id: Uuid, source: &str, now: Timestamp, traceparent: &str) -> Envelope {
        Envelope {
            id: id.to_string(),
            topic: self.topic.to_owned(),
            source: source.to_owned(),
            key: self.key.clone(),
            occur_time: Some(convert::time_to_pb(now)),
            traceparent: traceparent.to_owned(),
            payload_type: self.payload_type.to_owned(),
            payload: self.payload.clone(),
        }
    }
}

/// Domain event before it is encoded. The `convert` module of a service implements this, so that code which appends
/// events to the [`Outbox`](super::Outbox) does not name the contract.
pub trait OutgoingEvent {
    /// Encodes the event for the outbox.
    fn to_new_event(&self) -> NewEvent;
}

impl OutgoingEvent for NewEvent {
    fn to_new_event(&self) -> NewEvent {
        self.clone()
    }
}

/// Event as its handler receives it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Id of the event, the same at every delivery.
    pub id: Uuid,
    /// Topic as the contract names it.
    pub topic: String,
    /// Position in the topic, gap-free from 1.
    pub position: i64,
    /// Name of the sending service.
    pub source: String,
    /// Ordering key, usually the id of the changed resource.
    pub key: String,
    /// Time of the change that the event reports, by its sender's clock.
    pub occur_time: Timestamp,
    /// W3C `traceparent` of the cause. Empty if there was none.
    pub traceparent: String,
    payload_type: String,
    payload: Bytes,
}

/// An event that cannot be read. Retries do not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The envelope is not valid protobuf.
    #[error("failed to decode the envelope")]
    Envelope(#[source] prost::DecodeError),
    /// A field of the envelope has an invalid value.
    #[error("the envelope's {field} is malformed")]
    Field {
        /// Name of the field.
        field: &'static str,
    },
    /// The payload has another type than the handler expects.
    #[error("the payload is a {found}, not a {expected}")]
    Type {
        /// Type that the handler expects.
        expected: &'static str,
        /// Type that the envelope names.
        found: String,
    },
    /// The payload is not valid protobuf.
    #[error("failed to decode the payload {payload_type}")]
    Payload {
        /// Type that the envelope names.
        payload_type: &'static str,
        /// Error of the protobuf decoder.
        #[source]
        source: prost::DecodeError,
    },
    /// The event is older than the inbox retention, so it may have been handled before.
    #[error("the event is older than the inbox retention, it may have been handled before")]
    TooOld,
    /// Every consumer that handled the event crashed, so there is no other error.
    #[error("every consumer that tried to handle the event crashed")]
    ConsumersCrashed,
}

impl Message {
    pub(super) fn read(position: i64, envelope: &[u8]) -> Result<Self, MessageError> {
        let envelope = Envelope::decode(envelope).map_err(MessageError::Envelope)?;
        let malformed = |field| MessageError::Field { field };
        if envelope.payload.len() > PAYLOAD_BYTES_MAX {
            return Err(malformed("payload"));
        }
        let time = envelope.occur_time.ok_or(malformed("occur_time"))?;
        Ok(Self {
            id: Uuid::parse_str(&envelope.id).map_err(|_| malformed("id"))?,
            topic: envelope.topic,
            position,
            source: envelope.source,
            key: envelope.key,
            occur_time: convert::time_from_pb(time).map_err(|_out_of_range| malformed("occur_time"))?,
            traceparent: envelope.traceparent,
            payload_type: envelope.payload_type,
            payload: envelope.payload,
        })
    }

    /// Decodes the payload, whose type must be `P`.
    pub fn payload<P: EventPayload>(&self) -> Result<P, MessageError> {
        if self.payload_type != P::TYPE {
            return Err(MessageError::Type { expected: P::TYPE, found: self.payload_type.clone() });
        }
        P::decode(self.payload.clone())
            .map_err(|source| MessageError::Payload { payload_type: P::TYPE, source })
    }
}
