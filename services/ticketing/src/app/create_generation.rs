//! `CreateGeneration`: grpc → app → store::generations; then a generator.

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{EventId, OrganizerId};

use super::App;
use crate::{domain::generation::Generation, error::Error, store::generations};

impl App {
    /// Restarts the event's generation if it has failed, and returns the newest one. None is created here: every event has one
    /// from its first `event.created` on.
    pub(crate) async fn create_generation(
        &self,
        organizer_id: OrganizerId,
        request: &Request<'_, Generation>,
        event_id: EventId,
    ) -> Result<Answer<Generation>, Error> {
        self.check_owner(event_id, organizer_id).await?;
        let newest = generations::newest(&self.stores.postgres, event_id).await?;
        let generation_id = newest.ok_or(Error::EventHasNoGeneration { event_id })?;
        let work = |transaction: Transaction| async move {
            let restart = async {
                generations::restart_failed(&transaction, event_id).await?;
                let generation = generations::get_in(&transaction, generation_id).await?;
                generation.ok_or(Error::GenerationNotFound { generation_id })
            };
            request.once(&transaction, restart).await
        };
        let answer = self.stores.postgres.transaction("create generation", work).await;
        self.generation_hint.notify_one();
        answer
    }
}
