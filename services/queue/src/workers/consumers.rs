//! What Queue hears from others: one consumer for each topic of which the contract names it as a listener.

use std::sync::Arc;

use onsale_kit::BuildError;
use onsale_proto::{
    EventPayload,
    events::v1::{
        ClaimReleased, EventActivated, EventCreated, EventEnded, InventoryAvailable, InventorySoldOut,
        OrderCompleted,
    },
};
use onsale_storage::{
    messaging::{ConsumerConfig, Handler, HandlerError, Message},
    postgres::Transaction,
};
use onsale_types::EventId;

use crate::{
    app::{App, apply_inventory_update::InventoryUpdate},
    convert::events,
};

/// Handles every topic; a message says which it is of.
struct Listening {
    app: Arc<App>,
}

/// Starts them.
pub(crate) fn start(app: &Arc<App>) -> Result<(), BuildError> {
    listen::<EventCreated>(app)?;
    listen::<EventActivated>(app)?;
    listen::<EventEnded>(app)?;
    listen::<InventorySoldOut>(app)?;
    listen::<InventoryAvailable>(app)?;
    listen::<OrderCompleted>(app)?;
    listen::<ClaimReleased>(app)
}

fn listen<P: EventPayload>(app: &Arc<App>) -> Result<(), BuildError> {
    let listening = Listening { app: Arc::clone(app) };
    Ok(app.stores.listen::<P>(&app.tasks, ConsumerConfig::default(), listening)?)
}

impl Handler for Listening {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        match message.topic.as_str() {
            EventCreated::TOPIC => self.learn(transaction, events::created(message.payload()?)?).await,
            EventActivated::TOPIC => self.learn(transaction, events::activated(&message.payload()?)?).await,
            EventEnded::TOPIC => self.learn(transaction, events::ended(&message.payload()?)?).await,
            InventorySoldOut::TOPIC => self.learn(transaction, events::sold_out(&message.payload()?)?).await,
            InventoryAvailable::TOPIC => {
                self.learn(transaction, events::available(&message.payload()?)?).await
            }
            OrderCompleted::TOPIC => match events::completed(&message.payload()?)? {
                Some((turn, claim_id)) => Ok(self.app.order_completed(transaction, turn, claim_id).await?),
                None => Ok(()),
            },
            ClaimReleased::TOPIC => match events::lost(&message.payload()?)? {
                Some(turn) => Ok(self.app.claim_lost(transaction, turn).await?),
                None => Ok(()),
            },
            topic => Err(HandlerError::Poison(format!("nobody handles {topic}").into())),
        }
    }
}

impl Listening {
    async fn learn(
        &self,
        transaction: &Transaction,
        (event_id, report): (EventId, InventoryUpdate),
    ) -> Result<(), HandlerError> {
        Ok(self.app.learn(transaction, event_id, report).await?)
    }
}
