//! `ListQuotas`: the quotas of an organizer's event, oldest first, a page at a time.

use onsale_types::{EventId, OrganizerId, PageSize, QuotaId, Timestamp};

use super::super::{App, check_own};
use crate::{domain::quota::Quota, error::Error, store};

/// Which quotas to answer.
#[derive(Clone, Copy, Debug)]
pub struct ListQuotas {
    /// Of this event.
    pub event_id: EventId,
    /// How many.
    pub page_size: PageSize,
    /// Where the page before ended.
    pub after: Option<(Timestamp, QuotaId)>,
}

/// A page of quotas.
#[derive(Clone, Debug)]
pub struct QuotasPage {
    /// The quotas.
    pub quotas: Vec<Quota>,
    /// Where the page ends, if there is another.
    pub next: Option<(Timestamp, QuotaId)>,
}

impl App {
    /// Quotas of an event of `organizer_id`.
    pub async fn list_quotas(
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
                check_own(&found.ok_or(Error::EventNotFound { event_id })?, organizer_id)?;
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
