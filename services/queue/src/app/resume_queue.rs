//! `ResumeQueue`: grpc → app → store::lines (lock) → domain::queue → store → engine::publish.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{domain::queue::QueueAndLine, error::Error};

impl App {
    /// Resumes admission of a paused queue.
    pub(crate) async fn resume_queue(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        request: &Request<'_, QueueAndLine>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let resume = |current: &mut QueueAndLine| Ok(current.queue.resume(current.now)?);
        self.control_queue(organizer_id, event_id, request, resume).await
    }
}
