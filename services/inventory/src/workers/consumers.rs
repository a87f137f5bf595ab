//! Consumers of the topics of which the contract names Inventory as a listener.

use std::sync::Arc;

use onsale_kit::{BuildError, tasks::Tasks};
use onsale_proto::events::v1::{GenerationCompleted, TicketGenerated};
use onsale_storage::{
    messaging::{ConsumerConfig, HandlerError, Listeners, Received},
    postgres::Transaction,
};

use crate::{app::App, convert, error::Error};

pub(crate) fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), BuildError> {
    Listeners::new(app.stores(), ConsumerConfig::default(), Arc::clone(app))
        .on(generation_completed)
        .ignore::<TicketGenerated>("the units of these tickets were committed before, by CommitHold")
        .start(tasks)?;
    Ok(())
}

async fn generation_completed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<GenerationCompleted>,
) -> Result<(), HandlerError> {
    let (event_id, revision) = convert::events::generation_completed(&event.payload)?;
    Ok(app.record_generation(&transaction, event_id, revision).await?)
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Postgres(error) => error.into(),
            error => Self::by_kind(error),
        }
    }
}
