//! `GetEvent`: grpc → app → engine::catalog → store. Returns one event with the layouts of its sectors.

use onsale_types::EventId;

use super::App;
use crate::{
    domain::{event::Viewer, results::EventAndOffer},
    error::Error,
};

impl App {
    pub(crate) async fn get_event(&self, viewer: Viewer, event_id: EventId) -> Result<EventAndOffer, Error> {
        self.engine.find_event(event_id, viewer).await
    }
}
