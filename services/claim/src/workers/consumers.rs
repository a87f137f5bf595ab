//! Other services' events: one consumer for each topic that names Claim as a listener.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    deadline::Deadline,
    error::{Chain, Kind, ServiceError},
    tasks::Tasks,
};
use onsale_proto::events::v1::{
    PaymentConfirmed, PaymentFailed, PaymentRefunded, QueueExpired, QueueTurnGranted,
};
use onsale_storage::{
    messaging::{ConsumerConfig, Error as MessagingError, Handler, HandlerError, Message},
    postgres::Transaction,
};
use onsale_types::ClaimId;

use crate::{app::App, config::ConsumersConfig, convert, error::Error};

/// The longest a payment is settled within its event's transaction: an idle transaction is ended by the database after its
/// `idle_in_transaction_timeout`. What is not done by then goes on with the next try, from where it stands.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(8);

/// Starts a consumer for every topic.
pub(super) fn start(app: &Arc<App>, config: &ConsumersConfig, tasks: &Tasks) -> Result<(), MessagingError> {
    let listen = ConsumerConfig { concurrency: config.concurrency, ..ConsumerConfig::default() };
    let stores = &app.stores;
    stores.listen::<PaymentConfirmed>(tasks, listen.clone(), Confirmed(Arc::clone(app)))?;
    stores.listen::<PaymentFailed>(tasks, listen.clone(), Failed(Arc::clone(app)))?;
    // Shown nowhere: the contract's states end with CONFIRMED or RELEASED, and sold units do not come back.
    stores.listen::<PaymentRefunded>(tasks, listen.clone(), Acknowledge)?;
    // A turn is proven by its token and by Queue, not by hearsay.
    stores.listen::<QueueTurnGranted>(tasks, listen.clone(), Acknowledge)?;
    stores.listen::<QueueExpired>(tasks, listen, TurnEnds(Arc::clone(app)))
}

/// Confirms the claim, as `ConfirmClaim` does. Whose money goes back then is for Payment to see: it asks by call, too.
struct Confirmed(Arc<App>);

impl Handler for Confirmed {
    async fn handle(&self, _: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let command = convert::payment_confirmed(&message.payload()?)?;
        let deadline = Deadline::after(SETTLE_TIME_MAX);
        let settled = deadline.bound(deadline.scope(Box::pin(self.0.confirm_claim(command)))).await;
        match settled.map_err(|passed| HandlerError::Unavailable(passed.into()))? {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), Kind::State | Kind::NotFound) => {
                tracing::info!(error = %Chain(&error), "a payment confirms no claim");
                Ok(())
            }
            Err(error) => Err(failure(error)),
        }
    }
}

/// Releases the claim whose payment failed.
struct Failed(Arc<App>);

impl Handler for Failed {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let event: PaymentFailed = message.payload()?;
        let claim = ClaimId::parse(&event.claim_id)?;
        self.0.release_unpaid(transaction, claim).await.map_err(failure)
    }
}

/// Releases the claim of a turn that was left.
struct TurnEnds(Arc<App>);

impl Handler for TurnEnds {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        match convert::turn_ended(&message.payload()?)? {
            Some(turn) => self.0.release_of_turn(transaction, turn).await.map_err(failure),
            None => Ok(()),
        }
    }
}

/// Nothing to do.
struct Acknowledge;

impl Handler for Acknowledge {
    async fn handle(&self, _: &Transaction, _: &Message) -> Result<(), HandlerError> {
        Ok(())
    }
}

fn failure(error: Error) -> HandlerError {
    match error.kind() {
        Kind::Unavailable | Kind::Timeout | Kind::Limited | Kind::Contended => {
            HandlerError::Unavailable(error.into())
        }
        _ => HandlerError::Retry(error.into()),
    }
}
