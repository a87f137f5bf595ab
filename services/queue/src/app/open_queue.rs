//! `OpenQueue`: grpc → app → store::lines (lock) → domain::queue → store → engine::publish.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::OrganizerId;

use super::App;
use crate::{
    domain::{control::OpenQueue, queue::QueueAndLine},
    error::Error,
};

impl App {
    /// Opens the queue now or at a time, on behalf of its organizer.
    pub(crate) async fn open_queue(
        &self,
        organizer_id: OrganizerId,
        command: OpenQueue,
        request: &Request<'_, QueueAndLine>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let open = |current: &mut QueueAndLine| Ok(current.queue.open(command.open_time, current.now)?);
        self.control_queue(organizer_id, command.event_id, request, open).await
    }
}
