//! All Redis keys of Queue. The event is the tag: what one script touches lies together, and events spread.

use onsale_storage::redis::{Error, Key, Keyspace};
use onsale_types::EventId;

/// Where Queue keeps its keys.
#[derive(Clone, Debug)]
pub struct Keys {
    keyspace: Keyspace,
}

impl Keys {
    /// The keys in `keyspace`.
    #[must_use]
    pub fn new(keyspace: Keyspace) -> Self {
        Self { keyspace }
    }

    /// A hash about the line: `admitted` (the highest seq admitted) and, once everybody who waits is known here,
    /// `loaded`; while they are being brought, `loading` has the mark of who does it.
    pub fn line(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("line", event_id)?)
    }

    /// The sorted set of who waits: member is the entry, score its seq. Never a timestamp: equal scores would sort by name.
    pub fn waiting(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("waiting", event_id)?)
    }

    /// The sorted set of signs of life: member is the entry, score the millisecond of its last one, by Redis' clock.
    pub fn seen(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("seen", event_id)?)
    }

    /// The move log: a capped stream with one record per revision of the line.
    pub fn log(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("log", event_id)?)
    }

    /// The hash of what pods report: field is the pod, value its viewers, the milliseconds it is behind, and the
    /// millisecond of the report, by Redis' clock.
    pub fn pods(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("pods", event_id)?)
    }

    /// The sorted set of open streams: member is the entry, score the millisecond at which it was last known to be open, by
    /// Redis' clock.
    pub fn watching(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("watching", event_id)?)
    }

    /// The channel that hints at a change of the queue.
    pub fn moved(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("moved", event_id)?)
    }

    /// The channel that hints at a free slot.
    pub fn wake(&self) -> Result<Key, Error> {
        Ok(self.keyspace.key("wake", "admission")?)
    }
}
