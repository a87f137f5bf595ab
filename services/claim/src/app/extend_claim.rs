//! `ExtendClaim`: a payment in progress gives a claim more time, once.

use onsale_proto::claim::v1::ExtendClaimResponse;
use onsale_storage::idempotency;
use onsale_types::{ClaimId, PaymentId};

use super::App;
use crate::{convert, domain::Claim, error::Error, metrics, store};

/// A payment that has begun.
#[derive(Clone, Copy, Debug)]
pub struct ExtendClaim {
    /// Of which claim.
    pub claim: ClaimId,
    /// The payment.
    pub payment: PaymentId,
}

impl App {
    /// Gives the claim more time, if it may have any. Done before, it answers what it answered then.
    pub async fn extend_claim(
        &self,
        command: ExtendClaim,
        request: &idempotency::Request<'_>,
    ) -> Result<ExtendClaimResponse, Error> {
        let ExtendClaim { claim: id, payment } = command;
        self.stores
            .postgres
            .transaction("extend claim", |tx| async move {
                let work = async {
                    let locked = store::claims::lock(&tx, id).await?;
                    let (claim, now) = locked.ok_or(Error::ClaimNotFound { claim: id })?;
                    let extended = claim.extend(now, self.claims.window, self.claims.extension);
                    let claim = match extended {
                        Some(lifetime) => {
                            store::claims::save_lifetime(&tx, id, lifetime).await?;
                            tracing::info!(claim_id = %id, payment_id = %payment, "claim extended");
                            metrics::extended();
                            Claim { lifetime, ..claim }
                        }
                        None => claim,
                    };
                    Ok::<_, Error>(ExtendClaimResponse { claim: Some(convert::claim_to_pb(&claim)) })
                };
                idempotency::once(&tx, request, work).await
            })
            .await
    }
}
