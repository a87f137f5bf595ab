//! Others' events that Inventory is a listener of: one consumer per topic, all of them, or the sender keeps them for ever.

use std::sync::Arc;

use onsale_kit::server::Chassis;
use onsale_proto::{
    EventPayload,
    events::v1::{GenerationCompleted, TicketGenerated},
};
use onsale_storage::{
    messaging::{self, Consumer, ConsumerConfig, Handler, HandlerError, Message},
    postgres::Transaction,
};

use crate::{app::App, convert, error::Error};

/// Starts them.
pub fn start(app: &Arc<App>, chassis: &Chassis) -> Result<(), messaging::Error> {
    listen::<GenerationCompleted>(app, chassis, GenerationNoted { app: Arc::clone(app) })?;
    listen::<TicketGenerated>(app, chassis, TicketsSeen)
}

fn listen<P: EventPayload>(
    app: &App,
    chassis: &Chassis,
    handler: impl Handler,
) -> Result<(), messaging::Error> {
    let config = ConsumerConfig { group: chassis.service().to_owned(), ..ConsumerConfig::default() };
    let (postgres, redis) = (app.stores().postgres.clone(), app.stores().redis.clone());
    let consumer = Consumer::new::<P>(postgres, redis, chassis.clock(), config, handler)?;
    chassis.tasks().spawn(P::TOPIC, consumer.run(chassis.tasks().token()));
    Ok(())
}

/// `generation.completed`: noted with the event.
struct GenerationNoted {
    app: Arc<App>,
}

impl Handler for GenerationNoted {
    async fn handle(&self, tx: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let payload = message.payload::<GenerationCompleted>()?;
        let (event_id, revision) =
            convert::generation_completed(&payload).map_err(|error| HandlerError::Poison(error.into()))?;
        self.app.note_generation(tx, event_id, revision).await.map_err(|error| match error {
            Error::Postgres(error) => error.into(),
            error => HandlerError::Retry(error.into()),
        })
    }
}

/// `ticket.generated`: the units of these tickets were committed before, by `CommitHold`; there is nothing to store. Read
/// all the same, so that a payload nobody can read is found here too.
struct TicketsSeen;

impl Handler for TicketsSeen {
    async fn handle(&self, _tx: &Transaction, message: &Message) -> Result<(), HandlerError> {
        message.payload::<TicketGenerated>()?;
        Ok(())
    }
}
