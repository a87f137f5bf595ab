//! `ReleaseHold`: gives a hold's units back, in Postgres first. Expiry does the same for many.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent, postgres::Transaction};
use onsale_types::{EventId, HoldId};

use super::App;
use crate::{
    convert,
    domain::{
        event::{EventState, Move},
        hold::{Hold, HoldState},
    },
    error::Error,
    store,
};

impl App {
    /// Gives the hold's units back.
    pub async fn release_hold(
        &self,
        request: &Request<'_>,
        hold_id: HoldId,
    ) -> Result<pb::ReleaseHoldResponse, Error> {
        let released = &Mutex::new(None);
        let response = self
            .once("release hold", request, |tx| async move {
                let found = store::hold::lock(&tx, hold_id).await?;
                let hold = found.ok_or(Error::HoldNotFound { hold_id })?;
                if !hold.state.release().map_err(|over| Error::HoldOver { hold_id, over })? {
                    return Ok(convert::released(&hold));
                }
                let hold = store::hold::end(&tx, hold_id, HoldState::Released).await?;
                self.free_units_of(&tx, std::slice::from_ref(&hold)).await?;
                let response = convert::released(&hold);
                *released.lock().unwrap_or_else(PoisonError::into_inner) = Some(hold);
                Ok(response)
            })
            .await?;
        // Should we die before this, the reconciler does it.
        let released = released.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.return_units(released.as_slice()).await;
        Ok(response)
    }

    /// Makes the units of released `holds` nobody's, and tells that a sold-out event has units again.
    pub(super) async fn free_units_of(&self, tx: &Transaction, holds: &[Hold]) -> Result<(), Error> {
        store::hold::delete_units(tx, holds).await?;
        let events: BTreeSet<EventId> = holds.iter().map(|hold| hold.event_id).collect();
        for event_id in events {
            self.take_back(tx, event_id).await?;
        }
        Ok(())
    }

    /// Puts the units of released `holds` back into the pools; after the commit.
    pub(super) async fn return_units(&self, holds: &[Hold]) {
        for hold in holds {
            for item in &hold.items {
                self.pools.put_back(hold.event_id, item.sector_id, &item.numbers()).await;
            }
        }
    }

    async fn take_back(&self, tx: &Transaction, event_id: EventId) -> Result<(), Error> {
        // Without a lock on the usual way: as long as our units are not sold, nobody can sell the event out.
        let found = store::event::find(tx, event_id).await?;
        if found.is_none_or(|event| event.state != EventState::SoldOut) {
            return Ok(());
        }
        let event = store::event::lock(tx, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        let Move::To(state) = event.state.take_back() else { return Ok(()) };
        let event = store::event::move_to(tx, event_id, state).await?;
        let offer = self.offer_of(tx, &event).await?;
        let availability = store::stock::availability(tx, &event, &offer.sectors).await?;
        let payload = convert::available(&availability, &offer.sectors);
        self.stores.outbox.append(tx, &[NewEvent::new(event_id, &payload)]).await?;
        Ok(())
    }
}
