//! `ExtendClaim`: grpc → app → store::claims. A claim gets more time once, when a payment begins.

use onsale_storage::idempotency::{Answer, Request};

use super::App;
use crate::{
    domain::{Claim, ExtendClaim},
    error::Error,
    metrics, store,
};

impl App {
    /// Extends the claim if it is open and was not extended before. A repeated request returns the stored response.
    pub(crate) async fn extend_claim(
        &self,
        command: ExtendClaim,
        request: &Request<'_, Claim>,
    ) -> Result<Answer<Claim>, Error> {
        let ExtendClaim { claim_id, payment_id } = command;
        self.stores
            .postgres
            .transaction("extend claim", |transaction| async move {
                let work = async {
                    let locked = store::claims::lock(&transaction, claim_id).await?;
                    let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim_id })?;
                    let Some(expiry) = claim.extend(now, self.claims.window, self.claims.extension) else {
                        return Ok(claim);
                    };
                    store::claims::save_expiry(&transaction, claim_id, expiry).await?;
                    tracing::info!(%claim_id, %payment_id, "claim extended");
                    metrics::extended();
                    Ok::<_, Error>(Claim { expiry, ..claim })
                };
                request.once(&transaction, work).await
            })
            .await
    }
}
