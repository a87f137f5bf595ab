//! `ListDeadLetters`: grpc → app → store::event_owners → store::dead_letters.

use onsale_types::OrganizerId;

use super::App;
use crate::{
    domain::dead_letter::{DeadLetterPage, ListDeadLetters},
    error::Error,
    store,
};

impl App {
    pub(crate) async fn list_dead_letters(
        &self,
        organizer_id: OrganizerId,
        list: ListDeadLetters,
    ) -> Result<DeadLetterPage, Error> {
        self.check_event_owner(organizer_id, list.filter.event_id).await?;
        let ListDeadLetters { filter, after, page_size } = list;
        let deliveries = store::dead_letters::list(&self.stores.postgres, &filter, after, page_size).await?;
        Ok(DeadLetterPage::new(deliveries, page_size))
    }
}
