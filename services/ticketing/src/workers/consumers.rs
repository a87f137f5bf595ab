//! Consumers of the topics of which the contract names Ticketing as a listener.

use std::sync::Arc;

use onsale_kit::{BuildError, tasks::Tasks};
use onsale_proto::events::v1::{ClaimReleased, EventActivated, EventCreated, EventEnded, OrderCompleted};
use onsale_storage::{
    messaging::{ConsumerConfig, HandlerError, Listeners, Received},
    postgres::Transaction,
};

use crate::{app::App, convert::events};

/// Starts a consumer for every topic.
pub(super) fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), BuildError> {
    Listeners::new(&app.stores, ConsumerConfig::default(), Arc::clone(app))
        .on(event_created)
        .on(event_activated)
        .on(event_ended)
        .on(order_completed)
        .ignore::<ClaimReleased>(
            "a released claim has no tickets: it was not paid, or its payment is refunded",
        )
        .start(tasks)?;
    Ok(())
}

async fn event_created(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventCreated>,
) -> Result<(), HandlerError> {
    let plan = events::event_created(event.payload)?;
    Ok(app.event_created(&transaction, &plan).await?)
}

async fn event_activated(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventActivated>,
) -> Result<(), HandlerError> {
    let (event_id, activate_time) = events::event_activated(&event.payload)?;
    Ok(app.event_activated(&transaction, event_id, activate_time).await?)
}

async fn event_ended(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventEnded>,
) -> Result<(), HandlerError> {
    let (event_id, end_time) = events::event_ended(&event.payload)?;
    Ok(app.event_ended(&transaction, event_id, end_time).await?)
}

async fn order_completed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<OrderCompleted>,
) -> Result<(), HandlerError> {
    let order = events::order_completed(event.payload)?;
    Ok(app.order_completed(&transaction, &order).await?)
}
