//! Others' events that Inventory is a listener of: one consumer per topic, all of them, or the sender keeps them for ever.

use std::sync::Arc;

use onsale_kit::tasks::Tasks;
use onsale_proto::events::v1::{GenerationCompleted, TicketGenerated};
use onsale_storage::{
    messaging::{self, ConsumerConfig, Handler, HandlerError, Message},
    postgres::Transaction,
};

use crate::{app::App, convert, error::Error};

/// Starts them.
pub fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), messaging::Error> {
    let (stores, config) = (app.stores(), ConsumerConfig::default());
    stores.listen::<GenerationCompleted>(tasks, config.clone(), GenerationNoted { app: Arc::clone(app) })?;
    stores.listen::<TicketGenerated>(tasks, config, TicketsSeen)
}

/// `generation.completed`: noted with the event.
struct GenerationNoted {
    app: Arc<App>,
}

impl Handler for GenerationNoted {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let payload = message.payload::<GenerationCompleted>()?;
        let (event_id, revision) = convert::generation_completed(&payload)?;
        self.app.record_generation(transaction, event_id, revision).await.map_err(|error| match error {
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
