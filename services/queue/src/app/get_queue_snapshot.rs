//! `GetQueueSnapshot`: grpc → app → engine::snapshots → store::queues.

use std::sync::Arc;

use onsale_types::EventId;

use super::App;
use crate::{domain::snapshot::PublicSnapshot, error::Error};

impl App {
    /// Returns the public state of a queue, at most one second old.
    pub(crate) async fn get_queue_snapshot(&self, event_id: EventId) -> Result<Arc<PublicSnapshot>, Error> {
        self.engine.snapshot(event_id).await
    }
}
