//! `ListNeighbors`: grpc → app → store::neighbors → engine::positions → domain::neighborhood.

use onsale_types::{CustomerId, EventId};

use super::App;
use crate::{
    domain::neighborhood::{EntryWithNeighbors, Neighborhood, OwnEntry},
    engine::positions::PositionQuery,
    error::Error,
    store::neighbors,
};

/// Attempts to read an entry that leaves the line between two reads.
const ATTEMPTS_MAX: u32 = 3;

impl App {
    /// Returns up to `neighbors_max` waiting entries on either side of the customer. Does not count as a heartbeat.
    pub(crate) async fn list_neighbors(
        &self,
        event_id: EventId,
        customer_id: CustomerId,
        neighbors_max: u32,
    ) -> Result<Neighborhood, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let postgres = &self.engine.stores.postgres;
            let found = neighbors::read(postgres, event_id, customer_id, neighbors_max).await?;
            let own = found.waiting_entry(event_id)?;
            match self.own_position(event_id, own, &found, neighbors_max).await? {
                Some(position) => return Ok(found.at_position(position)),
                // The entry left the line after it was read; the next read returns its new state.
                None if attempts < ATTEMPTS_MAX => {}
                None => {
                    let position = found.first_possible_position();
                    return Ok(found.at_position(position));
                }
            }
        }
    }

    /// Returns the customer's position, or `None` if the entry does not wait any more.
    async fn own_position(
        &self,
        event_id: EventId,
        own: OwnEntry,
        found: &EntryWithNeighbors,
        neighbors_max: u32,
    ) -> Result<Option<u64>, Error> {
        let nearest = found.first_possible_position();
        // Fewer entries before the customer than requested: these are all of them.
        if nearest <= u64::from(neighbors_max) {
            return Ok(Some(nearest));
        }
        let (entry_id, seq, revision) = (own.entry_id, own.seq, found.revision);
        let query = PositionQuery { event_id, entry_id, seq, revision };
        let position = self.engine.position_batcher.submit(query).await?;
        // Some of the entries before the customer may have left since they were read.
        Ok(position.map(|position| position.max(nearest)))
    }
}
