//! `UpdateQueuePolicy`: grpc → app → store::lines (lock) → domain::policy → store → engine::publish.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{
    domain::{policy::PolicyChange, queue::QueueAndLine},
    error::Error,
};

impl App {
    /// Changes the policy values that the organizer set.
    pub(crate) async fn update_queue_policy(
        &self,
        organizer_id: OrganizerId,
        event_id: EventId,
        change: &PolicyChange,
        request: &Request<'_, QueueAndLine>,
    ) -> Result<Answer<QueueAndLine>, Error> {
        let update = |current: &mut QueueAndLine| {
            let (has_entries, now) = (current.line.last_seq > 0, current.now);
            Ok(current.queue.change_policy(change, has_entries, &self.engine.defaults, now)?)
        };
        self.control_queue(organizer_id, event_id, request, update).await
    }
}
