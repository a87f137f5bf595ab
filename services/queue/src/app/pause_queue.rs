//! `PauseQueue`: grpc → app → store::lines (lock) → domain::queue → store → engine::publish.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::OrganizerId;

use super::App;
use crate::{
    domain::{control::PauseQueue, queue::QueueAndLine},
    error::Error,
};

impl App {
    /// Stops admission, and joins too if the organizer says so.
    pub(crate) async fn pause_queue(
        &self,
        organizer_id: OrganizerId,
        command: &PauseQueue,
        request: &Request<'_, QueueAndLine>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let pause = |current: &mut QueueAndLine| {
            Ok(current.queue.pause(command.joins_paused, command.notice.clone(), current.now)?)
        };
        self.control_queue(organizer_id, command.event_id, request, pause).await
    }
}
