//! `ReleaseClaim`: grpc → app → engine::claim_writer → engine::hold_releaser → clients::inventory.
//!
//! One transaction releases the claim and marks its hold for release; Inventory follows. In the other order a payment that
//! arrives in between would find an open claim without units.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::{ClaimId, CustomerId};

use super::App;
use crate::{
    domain::{AlreadyPaid, Claim, ReleaseReason},
    error::Error,
    store,
};

impl App {
    /// Releases a claim of the customer. A repeated request returns the stored response.
    pub(crate) async fn release_claim(
        &self,
        customer_id: CustomerId,
        claim_id: ClaimId,
        request: &Request<'_, Claim>,
    ) -> Result<Answer<Claim>, Error> {
        let answer = self
            .stores
            .postgres
            .transaction("release claim", |transaction| async move {
                let work = async {
                    let locked = store::claims::lock(&transaction, claim_id).await?;
                    let own = locked.filter(|(claim, _)| claim.customer_id == customer_id);
                    let (claim, now) = own.ok_or(Error::ClaimNotFound { claim_id })?;
                    let lifecycle = claim.lifecycle.release(ReleaseReason::Customer);
                    let lifecycle = lifecycle.map_err(|AlreadyPaid| Error::ClaimConfirmed { claim_id })?;
                    self.writer.save(&transaction, claim, lifecycle, now).await
                };
                request.once(&transaction, work).await
            })
            .await?;
        self.writer.after_commit();
        // Release before the response, so that the customer sees the units free. Without Inventory a worker does it later.
        for hold_id in store::hold_attempts::releasing_of_claim(&self.stores.postgres, claim_id).await? {
            self.releaser.try_release(hold_id).await;
        }
        Ok(answer)
    }
}
