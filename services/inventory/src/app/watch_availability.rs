//! `WatchAvailability`: grpc → app → engine::watches → engine::availability → store. Streams the availability of an event.

use onsale_types::{EventId, SectorId};

use super::App;
use crate::{
    domain::event::Viewer,
    engine::{AvailabilityWatcher, check_sectors},
    error::Error,
};

impl App {
    /// Watches `sectors` of the event (empty: all).
    pub(crate) async fn watch_availability(
        &self,
        viewer: Viewer,
        event_id: EventId,
        sectors: Vec<SectorId>,
    ) -> Result<AvailabilityWatcher, Error> {
        check_sectors(&*self.engine.visible_offer(event_id, viewer).await?, &sectors)?;
        self.engine.watch(event_id, sectors).await
    }
}
