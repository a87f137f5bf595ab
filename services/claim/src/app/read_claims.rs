//! `GetClaim` and `ListClaims`.

use onsale_types::{ClaimId, CustomerId};

use super::App;
use crate::{
    domain::Claim,
    error::Error,
    store::{self, claims::Filter},
};

impl App {
    /// One claim; with a `customer`, only theirs.
    pub async fn get_claim(&self, id: ClaimId, customer: Option<CustomerId>) -> Result<Claim, Error> {
        let found = store::claims::find(&self.stores.postgres, id).await?;
        let may_see = |claim: &Claim| customer.is_none_or(|customer| claim.customer == customer);
        found.filter(may_see).ok_or(Error::ClaimNotFound { claim: id })
    }

    /// The claims that pass `filter`, newest first.
    pub async fn list_claims(&self, filter: &Filter) -> Result<Vec<Claim>, Error> {
        store::claims::list(&self.stores.postgres, filter).await
    }
}
