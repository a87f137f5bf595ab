//! `ListQuotas`: grpc → app → store. Returns a page of an event's quotas, oldest first.

use onsale_types::OrganizerId;

use super::{App, check_owner};
use crate::{
    domain::{commands::ListQuotas, results::QuotasPage},
    error::Error,
    store,
};

impl App {
    pub(crate) async fn list_quotas(
        &self,
        organizer_id: OrganizerId,
        query: &ListQuotas,
    ) -> Result<QuotasPage, Error> {
        let ListQuotas { event_id, page_size, after } = *query;
        let mut quotas = self
            .stores
            .postgres
            .transaction("list quotas", |transaction| async move {
                let found = store::events::find(&transaction, event_id).await?;
                check_owner(&found.ok_or(Error::EventNotFound { event_id })?, organizer_id)?;
                store::quotas::list(&transaction, event_id, after, page_size.rows_and_one()).await
            })
            .await?;
        let rows = usize::try_from(page_size.rows()).unwrap_or(usize::MAX);
        let has_more = quotas.len() > rows;
        quotas.truncate(rows);
        let next = quotas.last().filter(|_| has_more).map(|quota| (quota.create_time, quota.id));
        Ok(QuotasPage { quotas, next })
    }
}
