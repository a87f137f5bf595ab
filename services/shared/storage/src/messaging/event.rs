//! An event before it is written and after it was read.

use bytes::Bytes;
use onsale_proto::EventPayload;
use onsale_proto::events::v1::Envelope;
use onsale_types::Timestamp;
use prost::Message as _;
use uuid::Uuid;

/// The payload's limit, from the contract.
const PAYLOAD_BYTES_MAX: usize = 2 * 1024 * 1024;

/// An event to write.
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub(super) topic: &'static str,
    pub(super) payload_type: &'static str,
    pub(super) key: String,
    pub(super) payload: Bytes,
}

impl NewEvent {
    /// An event about `key`: events of one key and topic are published in the order they were written. They are handled
    /// in that order as far as [`Consumer`](super::Consumer) says.
    #[must_use]
    pub fn new<P: EventPayload>(key: impl ToString, payload: &P) -> Self {
        Self {
            topic: P::TOPIC,
            payload_type: P::TYPE,
            key: key.to_string(),
            payload: payload.encode_to_vec().into(),
        }
    }

    /// The envelope it travels in.
    pub(super) fn envelope(&self, id: Uuid, source: &str, now: Timestamp, traceparent: &str) -> Envelope {
        let (seconds, nanos) = now.to_seconds_and_nanos();
        Envelope {
            id: id.to_string(),
            topic: self.topic.to_owned(),
            source: source.to_owned(),
            key: self.key.clone(),
            occur_time: Some(prost_types::Timestamp { seconds, nanos }),
            traceparent: traceparent.to_owned(),
            payload_type: self.payload_type.to_owned(),
            payload: self.payload.clone(),
        }
    }
}

/// A service's event before it is encoded. The `convert` module of a service implements this for its domain type, so that the
/// code which appends events to the [`Outbox`](super::Outbox) does not name the contract.
pub trait OutgoingEvent {
    /// Encodes the event.
    fn to_new_event(&self) -> NewEvent;
}

impl OutgoingEvent for NewEvent {
    fn to_new_event(&self) -> NewEvent {
        self.clone()
    }
}

/// An event as its handler gets it.
#[derive(Clone, Debug)]
pub struct Message {
    /// The event's id: the same however often it comes.
    pub id: Uuid,
    /// Its topic.
    pub topic: String,
    /// Its place in the topic, gap-free from 1.
    pub position: i64,
    /// The service it comes from.
    pub source: String,
    /// What it is about.
    pub key: String,
    /// When it became true.
    pub occur_time: Timestamp,
    /// Where in a trace it was caused.
    pub traceparent: String,
    payload_type: String,
    payload: Bytes,
}

/// Why an event could not be read. Trying again would not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The envelope does not decode.
    #[error("failed to decode the envelope")]
    Envelope(#[source] prost::DecodeError),
    /// The envelope decodes and makes no sense.
    #[error("the envelope's {field} is malformed")]
    Field {
        /// Which field.
        field: &'static str,
    },
    /// The payload is of another type.
    #[error("the payload is a {found}, not a {expected}")]
    Type {
        /// What the handler expects.
        expected: &'static str,
        /// What the envelope says.
        found: String,
    },
    /// The payload does not decode.
    #[error("failed to decode the payload {payload_type}")]
    Payload {
        /// What it should be.
        payload_type: &'static str,
        /// Why not.
        #[source]
        source: prost::DecodeError,
    },
    /// The event is older than the inbox remembers: it may have been handled before.
    #[error("the event is older than the inbox remembers, it may have been handled before")]
    TooOld,
    /// Every consumer that began with it died, so none could say why.
    #[error("every consumer that tried to handle the event died")]
    ConsumersCrashed,
}

impl Message {
    /// Reads an envelope that came at `position`.
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
            occur_time: Timestamp::from_seconds_and_nanos(time.seconds, time.nanos)
                .ok_or(malformed("occur_time"))?,
            traceparent: envelope.traceparent,
            payload_type: envelope.payload_type,
            payload: envelope.payload,
        })
    }

    /// The payload, which must be a `P`.
    pub fn payload<P: EventPayload>(&self) -> Result<P, MessageError> {
        if self.payload_type != P::TYPE {
            return Err(MessageError::Type { expected: P::TYPE, found: self.payload_type.clone() });
        }
        P::decode(self.payload.clone())
            .map_err(|source| MessageError::Payload { payload_type: P::TYPE, source })
    }
}
