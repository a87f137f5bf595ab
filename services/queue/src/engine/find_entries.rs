//! Entries of customers who come at the same time, found together: a hundred thousand who open their streams after a
//! failover are some hundred statements.

use std::collections::{BTreeMap, HashMap};

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::postgres::Postgres;
use onsale_types::{CustomerId, EventId};

use crate::{
    error::Error,
    store::entries::{self, FoundEntry},
};

/// A customer whose entry is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryKey {
    /// In which queue.
    pub(crate) event_id: EventId,
    /// Whose.
    pub(crate) customer_id: CustomerId,
}

/// Finds the newest entry of each customer.
pub(crate) struct FindEntryProcessor(pub(crate) Postgres);

impl Processor<EntryKey> for FindEntryProcessor {
    type Output = Option<FoundEntry>;
    type Error = Error;

    async fn process(&self, items: &[EntryKey]) -> BatchOutcome<Option<FoundEntry>, Error> {
        let mut events: BTreeMap<EventId, Vec<CustomerId>> = BTreeMap::new();
        for item in items {
            events.entry(item.event_id).or_default().push(item.customer_id);
        }
        let mut found = HashMap::with_capacity(items.len());
        for (event_id, customers) in events {
            match entries::newest_of(&self.0, event_id, &customers).await {
                Ok(entries) => found.extend(
                    entries
                        .into_iter()
                        .map(|entry| (EntryKey { event_id, customer_id: entry.entry.customer_id }, entry)),
                ),
                Err(error) => return BatchOutcome::Failed(error),
            }
        }
        BatchOutcome::Answered(items.iter().map(|item| Ok(found.get(item).cloned())).collect())
    }
}
