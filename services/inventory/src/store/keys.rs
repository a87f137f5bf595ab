//! Every Redis key of Inventory.

use onsale_storage::redis::{Key, KeyError, Keyspace};
use onsale_types::{EventId, SectorId};

/// Builds keys under the service's prefix.
#[derive(Clone, Debug)]
pub struct Keys {
    keyspace: Keyspace,
}

impl Keys {
    /// `keyspace` has the service's prefix.
    #[must_use]
    pub fn new(keyspace: Keyspace) -> Self {
        Self { keyspace }
    }

    /// Returns the key of a sector's pool, a bitmap of free units. Its hash tag names the sector, so that a popular event
    /// spreads over the cluster.
    pub fn pool(&self, event_id: EventId, sector_id: SectorId) -> Result<Key, KeyError> {
        self.keyspace.key("free", format_args!("{event_id}:{sector_id}"))
    }
}
