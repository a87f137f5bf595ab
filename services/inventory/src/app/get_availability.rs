//! `GetAvailability`: grpc → app → engine::availability → store. Returns the free and held units of an event.

use onsale_types::{EventId, SectorId};

use super::App;
use crate::{
    domain::{availability::Availability, event::Viewer},
    engine::check_sectors,
    error::Error,
};

impl App {
    /// Returns the availability of `sectors` (empty: all).
    pub(crate) async fn get_availability(
        &self,
        viewer: Viewer,
        event_id: EventId,
        sectors: &[SectorId],
    ) -> Result<Availability, Error> {
        check_sectors(&*self.engine.visible_offer(event_id, viewer).await?, sectors)?;
        Ok(self.engine.read_availability(event_id).await?.only(sectors))
    }
}
