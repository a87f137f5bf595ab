//! `CloseQueue`: grpc → app → clients::inventory → store::lines (lock) → domain::queue → store → engine::publish.

use std::collections::HashMap;

use onsale_kit::error::Violation;
use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{OrganizerId, SectorId};

use super::App;
use crate::{
    domain::{
        control::CloseQueue,
        queue::{Queue, QueueAndLine, RemainingSector},
    },
    error::Error,
    store::queues,
};

/// Free units by sector.
type FreeUnits = HashMap<SectorId, u32>;

impl App {
    /// Closes the queue and names the sectors that still have free units.
    pub(crate) async fn close_queue(
        &self,
        organizer_id: OrganizerId,
        command: &CloseQueue,
        request: &Request<'_, QueueAndLine>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let CloseQueue { event_id, reason, remaining, notice } = command;
        let free = self.free_units(organizer_id, command).await?;
        let close = |current: &mut QueueAndLine| {
            let remaining = remaining_sectors(&current.queue, remaining, &free)?;
            Ok(current.queue.close(*reason, remaining, notice.clone(), current.now)?)
        };
        self.control_queue(organizer_id, *event_id, request, close).await
    }

    /// Reads the free units if the command names sectors. Called before the transaction, which must not wait for a neighbor.
    async fn free_units(&self, organizer_id: OrganizerId, command: &CloseQueue) -> Result<FreeUnits, Error> {
        if command.remaining.is_empty() {
            return Ok(FreeUnits::new());
        }
        let (postgres, defaults) = (&self.engine.stores.postgres, &self.engine.defaults);
        let current = queues::read(postgres, command.event_id, defaults).await?;
        current.queue.check_owner(organizer_id)?;
        Ok(self.inventory.availability(command.event_id).await?.sectors)
    }
}

fn remaining_sectors(
    queue: &Queue,
    sector_ids: &[SectorId],
    free: &FreeUnits,
) -> Result<Vec<RemainingSector>, Error> {
    let named = sector_ids.iter().enumerate().map(|(index, sector_id)| {
        let sector = queue.sectors.iter().find(|sector| sector.sector_id == *sector_id);
        let sector = sector.ok_or_else(|| {
            Error::Field(Violation {
                field: format!("remaining_sector_ids[{index}]"),
                description: "is not a sector of this event".to_owned(),
            })
        })?;
        let free_count = free.get(sector_id).copied().unwrap_or(0);
        Ok(RemainingSector { sector_id: *sector_id, name: sector.name.clone(), free_count })
    });
    named.collect()
}
