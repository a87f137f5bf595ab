//! Event `event.created`: workers::consumers → app → store::events → store::generations; then a generator.

use onsale_storage::postgres::Transaction;

use super::App;
use crate::{
    domain::event::EventPlan,
    error::Error,
    store::{events, generations},
};

impl App {
    /// Stores a new or changed event and points its generation at it, unless the same or a higher revision is stored. No ticket
    /// is generated here: there may be a million, and a handler has seconds.
    ///
    /// Locks event, generation and sectors, in this order. A batch that is being generated holds its sector's lock, so the plan
    /// waits for it and continues from its count.
    pub(crate) async fn event_created(
        &self,
        transaction: &Transaction,
        plan: &EventPlan,
    ) -> Result<(), Error> {
        let (event_id, revision) = (plan.event.event_id, plan.revision);
        if !events::save_if_newer(transaction, plan).await? {
            tracing::debug!(%event_id, revision, "event.created ignored, its revision is not newer");
            return Ok(());
        }
        generations::retarget(transaction, plan).await?;
        events::save_sectors(transaction, plan).await?;
        tracing::info!(%event_id, revision, sectors = plan.sectors.len(), "event planned");
        self.generation_hint.notify_one();
        Ok(())
    }
}
