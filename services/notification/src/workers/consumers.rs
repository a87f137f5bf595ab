//! Consumers of all topics of which the contract names Notification as a listener. Topics that need no mail are acknowledged
//! without effect: an event stays in its sender's outbox until every listener has acknowledged it.

use std::sync::Arc;

use onsale_kit::tasks::Tasks;
use onsale_proto::events::v1::{
    ClaimReleased, GenerationCompleted, OrderCompleted, PaymentConfirmed, PaymentFailed, PaymentRefunded,
    QueueExpired, QueuePositionUpdate, QueueTurnGranted, QuotaInvitation, TicketGenerated,
};
use onsale_storage::{
    messaging::{ConsumerConfig, Error, HandlerError, Listeners, Received},
    postgres::Transaction,
};

use crate::{app::App, convert::events, domain::order::OrderUpdate};

pub(super) fn start(app: &Arc<App>, tasks: &Tasks) -> Result<(), Error> {
    Listeners::new(&app.stores, ConsumerConfig::default(), Arc::clone(app))
        .on(order_completed)
        .on(ticket_generated)
        .on(payment_refunded)
        .on(quota_invitation)
        .on(generation_completed)
        .ignore::<PaymentConfirmed>("the confirmation mail follows order.completed")
        .ignore::<PaymentFailed>("the checkout shows the failure")
        .ignore::<ClaimReleased>("the customer canceled, or the shop shows the expiry")
        .ignore::<QueueTurnGranted>("push notifications are not sent yet")
        .ignore::<QueueExpired>("push notifications are not sent yet")
        .ignore::<QueuePositionUpdate>("push notifications are not sent yet")
        .start(tasks)
}

async fn order_completed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<OrderCompleted>,
) -> Result<(), HandlerError> {
    let (claim_id, order) = events::order_completed(event.payload, app.language_default())?;
    let update = OrderUpdate::Completed(Box::new(order));
    Ok(app.update_order(&transaction, claim_id, update).await?)
}

async fn ticket_generated(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<TicketGenerated>,
) -> Result<(), HandlerError> {
    let (claim_id, issued) = events::ticket_generated(event.payload, app.language_default())?;
    let update = OrderUpdate::TicketsIssued(Box::new(issued));
    Ok(app.update_order(&transaction, claim_id, update).await?)
}

async fn payment_refunded(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<PaymentRefunded>,
) -> Result<(), HandlerError> {
    let job = events::payment_refunded(event.payload, app.language_default())?;
    Ok(app.add_job(&transaction, job).await?)
}

async fn quota_invitation(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<QuotaInvitation>,
) -> Result<(), HandlerError> {
    let job = events::quota_invitation(event.payload, app.language_default())?;
    Ok(app.add_job(&transaction, job).await?)
}

/// Records the event's organizer. Sends no mail: Notification has no addresses of organizers.
async fn generation_completed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<GenerationCompleted>,
) -> Result<(), HandlerError> {
    let (event_id, organizer_id) = events::generation_completed(&event.payload)?;
    Ok(app.record_event_owner(&transaction, event_id, organizer_id).await?)
}
