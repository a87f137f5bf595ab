//! `CommitHold`: makes a hold's units sold. The commit that sells the last unit also says that the event is sold out.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent, postgres::Transaction};
use onsale_types::{EventId, HoldId};

use super::App;
use crate::{
    convert,
    domain::{event::Move, hold::HoldState},
    error::Error,
    store,
};

impl App {
    /// Makes the hold's units sold.
    pub async fn commit_hold(
        &self,
        request: &Request<'_>,
        hold_id: HoldId,
    ) -> Result<pb::CommitHoldResponse, Error> {
        let response = self
            .once("commit hold", request, |tx| async move {
                let found = store::hold::lock(&tx, hold_id).await?;
                let hold = found.ok_or(Error::HoldNotFound { hold_id })?;
                if !hold.state.commit().map_err(|over| Error::HoldOver { hold_id, over })? {
                    return Ok(convert::committed(&hold));
                }
                let hold = store::hold::end(&tx, hold_id, HoldState::Committed).await?;
                if store::stock::sell(&tx, &hold.items).await? {
                    self.sell_out(&tx, hold.event_id).await?;
                }
                Ok(convert::committed(&hold))
            })
            .await?;
        Ok(response)
    }

    /// Sells the event out if nothing is left. Whoever fills a sector comes here and locks the event first; so of two that
    /// fill the last two sectors side by side, the second sees what the first has done.
    async fn sell_out(&self, tx: &Transaction, event_id: EventId) -> Result<(), Error> {
        let event = store::event::lock(tx, event_id).await?.ok_or(Error::EventNotFound { event_id })?;
        if !store::stock::is_sold_out(tx, event_id).await? {
            return Ok(());
        }
        let Move::To(state) = event.state.sell_out() else { return Ok(()) };
        let event = store::event::move_to(tx, event_id, state).await?;
        let (revision, time) = store::stock::revision(tx, &event).await?;
        let payload = convert::sold_out(event_id, revision, time);
        self.stores.outbox.append(tx, &[NewEvent::new(event_id, &payload)]).await?;
        Ok(())
    }
}
