//! All Redis keys of Queue. The event is the hash tag: keys of one script are on one node, and events spread over the cluster.

use onsale_storage::redis::{Error, Key, Keyspace};
use onsale_types::EventId;

/// The Redis keys of Queue in one keyspace.
#[derive(Clone, Debug)]
pub struct Keys {
    keyspace: Keyspace,
}

impl Keys {
    /// Returns the keys in `keyspace`.
    #[must_use]
    pub fn new(keyspace: Keyspace) -> Self {
        Self { keyspace }
    }

    /// A hash about the line. `admitted` is the highest number admitted. `loaded` exists once every waiting entry is in
    /// Redis; while they are being loaded, `loading` has the mark of the pod that loads them.
    pub fn line(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("line", event_id)?)
    }

    /// The sorted set of waiting entries: the member is the entry id, the score its number in line. Never a timestamp: equal
    /// scores would sort by id.
    pub fn waiting(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("waiting", event_id)?)
    }

    /// The sorted set of heartbeats: the member is the entry id, the score the time of its last heartbeat in milliseconds, by
    /// the clock of Redis.
    pub fn seen(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("seen", event_id)?)
    }

    /// The move log: a capped stream with one record per revision of the line.
    pub fn log(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("log", event_id)?)
    }

    /// The hash of viewer reports: the field is the pod; the value has its viewers, its lag in milliseconds, and the time of
    /// the report in milliseconds, by the clock of Redis.
    pub fn pods(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("pods", event_id)?)
    }

    /// The sorted set of open streams: the member is the entry id, the score the time in milliseconds at which the stream was
    /// last confirmed to be open, by the clock of Redis.
    pub fn watching(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("watching", event_id)?)
    }

    /// The channel that announces a change of the queue.
    pub fn moved(&self, event_id: EventId) -> Result<Key, Error> {
        Ok(self.keyspace.key("moved", event_id)?)
    }

    /// The channel that announces a free slot for a turn to the leader.
    pub fn wake(&self) -> Result<Key, Error> {
        Ok(self.keyspace.key("wake", "admission")?)
    }
}
