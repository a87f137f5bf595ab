//! Moves an event between ON_SALE and SOLD_OUT when its stock changes, and publishes the move.

use onsale_storage::postgres::Transaction;
use onsale_types::EventId;

use super::Engine;
use crate::{
    domain::{
        counts::Counts,
        domain_event::DomainEvent,
        event::{Event, EventState, Move},
    },
    error::Error,
    store,
};

impl Engine {
    /// Moves the event to SOLD_OUT if nothing is free or held, and returns it locked. Every transaction that fills a sector locks
    /// the event here first: of two that fill the last two sectors concurrently, the second sees the first.
    pub(crate) async fn sell_out(
        &self,
        transaction: &Transaction,
        event_id: EventId,
    ) -> Result<Event, Error> {
        let event =
            store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        let counts = store::stocks::counts(transaction, event_id).await?;
        if !counts.values().all(Counts::is_full) {
            return Ok(event);
        }
        let Move::To(state) = event.state.sell_out() else { return Ok(event) };
        let event = store::events::move_to(transaction, event_id, state).await?;
        let (revision, time) = (event.stock_revision(&counts), store::stocks::now(transaction).await?);
        let sold_out = DomainEvent::InventorySoldOut { event_id, revision, time };
        self.stores.outbox.append(transaction, &[sold_out]).await?;
        Ok(event)
    }

    /// Moves a SOLD_OUT event back to ON_SALE and publishes `inventory.available`; does nothing in any other state.
    pub(crate) async fn make_available(
        &self,
        transaction: &Transaction,
        event_id: EventId,
    ) -> Result<(), Error> {
        // Read without a lock first: while this transaction's units are not sold, no other transaction can sell the event out.
        let found = store::events::find(transaction, event_id).await?;
        if found.is_none_or(|event| event.state != EventState::SoldOut) {
            return Ok(());
        }
        let event =
            store::events::lock(transaction, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        let Move::To(state) = event.state.make_available() else { return Ok(()) };
        let event = store::events::move_to(transaction, event_id, state).await?;
        let offer = self.offer_of(transaction, &event).await?;
        let counts = store::stocks::counts(transaction, event_id).await?;
        let (revision, time) = (event.stock_revision(&counts), store::stocks::now(transaction).await?);
        let (sectors, counts) = (&offer.sectors[..], &counts);
        let available = DomainEvent::InventoryAvailable { event_id, revision, time, sectors, counts };
        self.stores.outbox.append(transaction, &[available]).await?;
        Ok(())
    }
}
