//! The topics Ticketing listens to: every one of which the contract names it as a listener, or the sender would keep their
//! events for ever.

use std::{marker::PhantomData, sync::Arc};

use onsale_kit::tasks::Tasks;
use onsale_proto::{
    EventPayload,
    events::v1::{ClaimReleased, EventActivated, EventCreated, EventEnded, OrderCompleted},
};
use onsale_storage::{
    messaging::{self, ConsumerConfig, Handler, HandlerError, Message},
    postgres::Transaction,
};

use crate::{app::App, convert::events};

/// Starts one consumer per topic.
pub fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), messaging::Error> {
    listen::<EventCreated>(app, tasks)?;
    listen::<EventActivated>(app, tasks)?;
    listen::<EventEnded>(app, tasks)?;
    listen::<OrderCompleted>(app, tasks)?;
    listen::<ClaimReleased>(app, tasks)
}

fn listen<P>(app: &Arc<App>, tasks: &Tasks) -> Result<(), messaging::Error>
where
    P: EventPayload + 'static,
    Listener<P>: Handler,
{
    let listener = Listener { app: Arc::clone(app), payload: PhantomData::<fn(P)> };
    app.stores.listen::<P>(tasks, ConsumerConfig::default(), listener)
}

/// Does what events with the payload `P` ask for.
struct Listener<P> {
    app: Arc<App>,
    payload: PhantomData<fn(P)>,
}

impl Handler for Listener<EventCreated> {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let plan = events::event_plan(message.payload()?)?;
        Ok(self.app.plan_event(transaction, &plan).await?)
    }
}

impl Handler for Listener<EventActivated> {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let (event_id, time) = events::activation(message.payload()?)?;
        Ok(self.app.note_activation(transaction, event_id, time).await?)
    }
}

impl Handler for Listener<EventEnded> {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let (event_id, time) = events::end(message.payload()?)?;
        Ok(self.app.note_end(transaction, event_id, time).await?)
    }
}

impl Handler for Listener<OrderCompleted> {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let order = events::completed_order(message.payload()?)?;
        Ok(self.app.take_order(transaction, &order).await?)
    }
}

/// A released claim was never paid, or its money goes back by another way: it has no tickets, and nothing is to be done.
impl Handler for Listener<ClaimReleased> {
    async fn handle(&self, _transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let released: ClaimReleased = message.payload()?;
        tracing::debug!(claim_id = released.claim_id, "claim released, it has no tickets");
        Ok(())
    }
}
