//! `ListEvents`: grpc → app → store. Returns a page of events by start time.

use onsale_storage::postgres::Isolation;

use super::App;
use crate::{
    domain::{
        commands::ListEvents,
        event::{Event, Viewer},
        results::EventsPage,
    },
    error::Error,
    store::{self, events::Filter},
};

impl App {
    /// Returns events that `viewer` may see.
    pub(crate) async fn list_events(&self, viewer: Viewer, query: &ListEvents) -> Result<EventsPage, Error> {
        let drafts_of = match viewer {
            Viewer::Organizer(organizer_id) => Some(organizer_id),
            Viewer::Anyone | Viewer::Mesh => None,
        };
        let filter = &Filter {
            all_drafts: viewer == Viewer::Mesh,
            drafts_of,
            organizer_id: query.organizer_id,
            states: query.states.clone(),
            start_from: query.start_from,
            start_until: query.start_until,
            after: query.after,
            rows_max: query.page_size.rows_and_one(),
        };
        let (mut events, mut sectors) = self
            .stores
            .postgres
            .transaction_at(Isolation::RepeatableRead, "list events", |transaction| async move {
                let events = store::events::list(&transaction, filter).await?;
                let sectors = store::events::sectors_without_layout(&transaction, &events).await?;
                Ok::<_, Error>((events, sectors))
            })
            .await?;
        let rows = usize::try_from(query.page_size.rows()).unwrap_or(usize::MAX);
        let has_more = events.len() > rows;
        events.truncate(rows);
        let next = events.last().filter(|_| has_more).map(|event| (event.details.start_time, event.id));
        let with_sectors = |event: Event| {
            let sectors = sectors.remove(&event.id).unwrap_or_default();
            (event, sectors)
        };
        Ok(EventsPage { events: events.into_iter().map(with_sectors).collect(), next })
    }
}
