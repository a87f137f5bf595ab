//! Lists of dead letters: the deliveries of an event that have failed for good.

use onsale_types::{EventId, PageSize, Timestamp};
use uuid::Uuid;

use super::{
    content::Template,
    delivery::{Channel, Delivery},
};

/// One page of a list of dead letters, as an organizer requests it.
#[derive(Clone, Debug)]
pub(crate) struct ListDeadLetters {
    pub(crate) filter: DeadLetterFilter,
    /// `None`: the first page.
    pub(crate) after: Option<DeadLetterPosition>,
    pub(crate) page_size: PageSize,
}

#[derive(Clone, Debug)]
pub(crate) struct DeadLetterFilter {
    pub(crate) event_id: EventId,
    /// Empty: all channels.
    pub(crate) channels: Vec<Channel>,
    /// Empty: all templates that this version knows.
    pub(crate) templates: Vec<Template>,
}

/// Position in a list of dead letters: the page begins after this delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetterPosition {
    pub(crate) end_time: Timestamp,
    pub(crate) delivery_id: Uuid,
}

#[derive(Clone, Debug)]
pub(crate) struct DeadLetterPage {
    /// Ordered by end time, newest first.
    pub(crate) deliveries: Vec<Delivery>,
    /// Position after which the next page begins. `None` on the last page.
    pub(crate) next: Option<DeadLetterPosition>,
}

impl DeadLetterPage {
    /// Builds the page from `deliveries`, which hold one more than `page_size` if there is a next page.
    pub(crate) fn new(mut deliveries: Vec<Delivery>, page_size: PageSize) -> Self {
        let rows = usize::try_from(page_size.rows()).unwrap_or(usize::MAX);
        let has_more = deliveries.len() > rows;
        deliveries.truncate(rows);
        let last = deliveries.last().filter(|_| has_more);
        let next = last.and_then(|last| {
            last.end_time.map(|end_time| DeadLetterPosition { end_time, delivery_id: last.delivery_id })
        });
        Self { deliveries, next }
    }
}
