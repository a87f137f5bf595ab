//! Facts of other services, each taken in in the transaction of its inbox row.

use onsale_storage::postgres::Transaction;
use onsale_types::{ClaimId, EventId, OrganizerId};

use super::App;
use crate::{
    domain::{
        job::NewJob,
        order::{self, Fact, Known},
    },
    error::HearError,
    store,
};

impl App {
    /// Something about an order: its mail follows when everything is there.
    pub async fn order_fact(
        &self,
        transaction: &Transaction,
        claim_id: ClaimId,
        fact: Fact,
    ) -> Result<(), HearError> {
        // The lock first: what the other half did is committed by the time we look for the mail.
        let waiting = store::waiting_orders::lock(transaction, claim_id).await?;
        let known = match store::jobs::told(transaction, claim_id).await? {
            Some(told) => Known::Told(told),
            None => Known::Waiting(waiting),
        };
        let settled = order::settle(claim_id, known, fact)?;
        if !settled.jobs.is_empty() {
            store::jobs::insert(transaction, &settled.jobs).await?;
        }
        store::waiting_orders::save(transaction, claim_id, settled.waiting.as_ref()).await?;
        Ok(())
    }

    /// Something that is told as it is.
    pub async fn job(&self, transaction: &Transaction, job: NewJob) -> Result<(), HearError> {
        store::jobs::insert(transaction, &[job]).await?;
        Ok(())
    }

    /// Whose event it is.
    pub async fn event_owner(
        &self,
        transaction: &Transaction,
        event_id: EventId,
        organizer_id: OrganizerId,
    ) -> Result<(), HearError> {
        Ok(store::event_owners::note(transaction, event_id, organizer_id).await?)
    }
}
