//! Consumers of the topics of which the contract names Claim as a listener.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    BuildError,
    deadline::Deadline,
    error::{Chain, Kind, ServiceError},
    tasks::Tasks,
};
use onsale_proto::events::v1::{
    PaymentConfirmed, PaymentFailed, PaymentRefunded, QueueExpired, QueueTurnGranted,
};
use onsale_storage::{
    messaging::{ConsumerConfig, HandlerError, Listeners, Received},
    postgres::Transaction,
};

use crate::{app::App, config::Config, convert::events};

/// Longest time for which a payment is settled within its event's transaction. The database ends an idle transaction after its
/// `idle_in_transaction_timeout`. The next delivery of the event continues the settlement.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(8);

/// Starts a consumer for every topic.
pub(super) fn start(app: &Arc<App>, config: &Config, tasks: &Tasks) -> Result<(), BuildError> {
    let consumer = ConsumerConfig { concurrency: config.consumers.concurrency, ..ConsumerConfig::default() };
    Listeners::new(&app.stores, consumer, Arc::clone(app))
        .on(payment_confirmed)
        .on(payment_failed)
        .ignore::<PaymentRefunded>("a refund changes no claim: sold units stay sold")
        .ignore::<QueueTurnGranted>(
            "CreateClaim validates turns by token and by a call to Queue, never by events",
        )
        .on(queue_expired)
        .start(tasks)?;
    Ok(())
}

/// Confirms the claim. A claim that cannot be confirmed is logged and left to Payment, which also calls `ConfirmClaim` and refunds
/// the buyer.
async fn payment_confirmed(
    app: Arc<App>,
    _: Transaction,
    event: Received<PaymentConfirmed>,
) -> Result<(), HandlerError> {
    let command = events::payment_confirmed(&event.payload)?;
    let deadline = Deadline::after(SETTLE_TIME_MAX);
    let settled = deadline.bound(deadline.scope(Box::pin(app.confirm_claim(command)))).await;
    match settled.map_err(|passed| HandlerError::Unavailable(passed.into()))? {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), Kind::State | Kind::NotFound) => {
            tracing::info!(error = %Chain(&error), "payment.confirmed ignored, claim cannot be confirmed");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

async fn payment_failed(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<PaymentFailed>,
) -> Result<(), HandlerError> {
    let claim_id = events::payment_failed(&event.payload)?;
    Ok(app.payment_failed(&transaction, claim_id).await?)
}

async fn queue_expired(
    app: Arc<App>,
    transaction: Transaction,
    event: Received<QueueExpired>,
) -> Result<(), HandlerError> {
    match events::queue_expired(&event.payload)? {
        Some(turn) => Ok(app.queue_expired(&transaction, turn).await?),
        None => Ok(()),
    }
}
