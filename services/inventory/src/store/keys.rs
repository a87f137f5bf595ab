//! Every Redis key of Inventory.

use onsale_storage::redis::{Key, KeyError, Keyspace};
use onsale_types::{EventId, SectorId};

/// Makes them.
#[derive(Clone, Debug)]
pub struct Keys {
    keyspace: Keyspace,
}

impl Keys {
    /// Under the service's own prefix.
    #[must_use]
    pub fn new(keyspace: Keyspace) -> Self {
        Self { keyspace }
    }

    /// The bitmap of a sector's free units. Tagged by sector, so that one hot event spreads over the cluster.
    pub fn pool(&self, event_id: EventId, sector_id: SectorId) -> Result<Key, KeyError> {
        self.keyspace.key("free", format_args!("{event_id}:{sector_id}"))
    }
}
