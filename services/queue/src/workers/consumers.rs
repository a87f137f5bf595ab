//! Event consumers: one for each topic of which the contract names Queue as a listener.

use std::sync::Arc;

use onsale_kit::BuildError;
use onsale_proto::events::v1::{
    ClaimReleased, EventActivated, EventCreated, EventEnded, InventoryAvailable, InventorySoldOut,
    OrderCompleted,
};
use onsale_storage::{
    messaging::{ConsumerConfig, HandlerError, Listeners, Received},
    postgres::Transaction,
};

use crate::{app::App, convert::events};

/// Starts the consumers.
pub(crate) fn start(app: &Arc<App>) -> Result<(), BuildError> {
    Listeners::new(&app.engine.stores, ConsumerConfig::default(), Arc::clone(app))
        .on(event_created)
        .on(event_activated)
        .on(event_ended)
        .on(inventory_sold_out)
        .on(inventory_available)
        .on(order_completed)
        .on(claim_released)
        .start(&app.engine.tasks)?;
    Ok(())
}

async fn event_created(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventCreated>,
) -> Result<(), HandlerError> {
    let (event_id, update) = events::event_created(event.payload)?;
    Ok(app.apply_inventory_update(&transaction, event_id, update).await?)
}

async fn event_activated(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventActivated>,
) -> Result<(), HandlerError> {
    let (event_id, update) = events::event_activated(&event.payload)?;
    Ok(app.apply_inventory_update(&transaction, event_id, update).await?)
}

async fn event_ended(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<EventEnded>,
) -> Result<(), HandlerError> {
    let (event_id, update) = events::event_ended(&event.payload)?;
    Ok(app.apply_inventory_update(&transaction, event_id, update).await?)
}

async fn inventory_sold_out(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<InventorySoldOut>,
) -> Result<(), HandlerError> {
    let (event_id, update) = events::inventory_sold_out(&event.payload)?;
    Ok(app.apply_inventory_update(&transaction, event_id, update).await?)
}

async fn inventory_available(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<InventoryAvailable>,
) -> Result<(), HandlerError> {
    let (event_id, update) = events::inventory_available(&event.payload)?;
    Ok(app.apply_inventory_update(&transaction, event_id, update).await?)
}

async fn order_completed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<OrderCompleted>,
) -> Result<(), HandlerError> {
    match events::order_completed(&event.payload)? {
        Some((turn, claim_id)) => Ok(app.order_completed(&transaction, turn, claim_id).await?),
        None => Ok(()),
    }
}

async fn claim_released(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<ClaimReleased>,
) -> Result<(), HandlerError> {
    let reason = events::release_reason(&event.payload);
    // Most releases leave the turn open; then a malformed turn does not matter.
    if !reason.ends_turn() {
        return Ok(());
    }
    match events::released_turn(&event.payload)? {
        Some(turn) => Ok(app.claim_released(&transaction, turn, reason).await?),
        None => Ok(()),
    }
}
