//! `ListClaims`: grpc → app → store::claims.

use super::App;
use crate::{
    domain::{Claim, ClaimFilter},
    error::Error,
    store,
};

impl App {
    /// Returns the claims that pass `filter`, newest first.
    pub(crate) async fn list_claims(&self, filter: &ClaimFilter) -> Result<Vec<Claim>, Error> {
        store::claims::list(&self.stores.postgres, filter).await
    }
}
