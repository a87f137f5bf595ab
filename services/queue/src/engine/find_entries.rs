//! Looks up the newest entries of many customers in one statement per event. After a failover, a hundred thousand customers who
//! reopen their streams cause a few hundred statements.

use std::collections::{BTreeMap, HashMap};

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::postgres::Postgres;
use onsale_types::{CustomerId, EventId};

use crate::{domain::entry::FoundEntry, error::Error, store::entries};

/// A customer in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryKey {
    pub(crate) event_id: EventId,
    pub(crate) customer_id: CustomerId,
}

/// Returns the newest entry of each customer of a batch, or `None` for one who never joined.
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
            match entries::newest_by_customer(&self.0, event_id, &customers).await {
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
