//! `ListEvents`: events by start time, a page at a time.

use onsale_storage::postgres::Isolation;
use onsale_types::{EventId, OrganizerId, PageSize, Timestamp};

use super::App;
use crate::{
    domain::event::{Event, EventState, Sector, Viewer},
    error::Error,
    store::{self, events::Filter},
};

/// Which events to answer.
#[derive(Clone, Debug)]
pub struct ListEvents {
    /// Only this organizer's.
    pub organizer_id: Option<OrganizerId>,
    /// Only in one of these states; none: all.
    pub states: Vec<EventState>,
    /// Only those that start then or later.
    pub start_from: Option<Timestamp>,
    /// Only those that start before.
    pub start_until: Option<Timestamp>,
    /// How many.
    pub page_size: PageSize,
    /// Where the page before ended.
    pub after: Option<(Timestamp, EventId)>,
}

/// A page of events.
#[derive(Clone, Debug)]
pub struct EventsPage {
    /// The events with their sectors, without layouts.
    pub events: Vec<(Event, Vec<Sector>)>,
    /// Where the page ends, if there is another.
    pub next: Option<(Timestamp, EventId)>,
}

impl App {
    /// Events that `viewer` may know of.
    pub async fn list_events(&self, viewer: Viewer, query: &ListEvents) -> Result<EventsPage, Error> {
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
