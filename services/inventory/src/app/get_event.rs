//! `GetEvent`: one event with the layouts of its sectors.

use onsale_proto::inventory::v1 as pb;
use onsale_types::EventId;

use super::App;
use crate::{convert, domain::event::Viewer, error::Error};

impl App {
    /// The event, if `viewer` may know of it.
    pub async fn get_event(&self, viewer: Viewer, event_id: EventId) -> Result<pb::GetEventResponse, Error> {
        let (event, offer) = self.find_event(event_id, viewer).await?;
        Ok(pb::GetEventResponse { event: Some(convert::event(&event, &offer.sectors)) })
    }
}
