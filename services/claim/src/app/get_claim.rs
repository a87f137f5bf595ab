//! `GetClaim`: grpc → app → store::claims.

use onsale_types::{ClaimId, CustomerId};

use super::App;
use crate::{domain::Claim, error::Error, store};

impl App {
    /// Returns a claim. With `only_of`, the claim of another customer is not found.
    pub(crate) async fn get_claim(
        &self,
        claim_id: ClaimId,
        only_of: Option<CustomerId>,
    ) -> Result<Claim, Error> {
        let found = store::claims::find(&self.stores.postgres, claim_id).await?;
        let is_visible = |claim: &Claim| only_of.is_none_or(|customer_id| claim.customer_id == customer_id);
        found.filter(is_visible).ok_or(Error::ClaimNotFound { claim_id })
    }
}
