//! What Inventory tells about an event: what tickets it is to have, when it became public, when its sale ended.

use onsale_storage::postgres::Transaction;
use onsale_types::{EventId, Timestamp};

use super::App;
use crate::{
    domain::event::EventPlan,
    error::Error,
    store::{events, generations},
};

impl App {
    /// Takes a new or changed draft over and aims the event's job at it, unless a higher revision is known. Tickets are not
    /// made here: a job may make a million of them, and a handler has seconds.
    ///
    /// Locks in the order event, job, sectors. A batch that is being made holds its sector: the plan waits for it, and
    /// counts from what it leaves.
    pub async fn plan_event(&self, transaction: &Transaction, plan: &EventPlan) -> Result<(), Error> {
        let event_id = plan.event.event_id;
        if !events::save(transaction, plan).await? {
            tracing::debug!(%event_id, revision = plan.revision, "event is known at this or a higher revision");
            return Ok(());
        }
        generations::aim(transaction, plan).await?;
        events::save_sectors(transaction, plan).await?;
        tracing::info!(%event_id, revision = plan.revision, sectors = plan.sectors.len(), "event planned");
        self.job_hint.notify_one();
        Ok(())
    }

    /// Notes that the event is public. It may not be known yet.
    pub async fn note_activation(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        time: Timestamp,
    ) -> Result<(), Error> {
        events::note_activation(transaction, event_id, time).await
    }

    /// Notes that the event's sale is over. Its tickets stay valid.
    pub async fn note_end(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        time: Timestamp,
    ) -> Result<(), Error> {
        events::note_end(transaction, event_id, time).await
    }
}
