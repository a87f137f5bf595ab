//! What Notification hears: one consumer for every topic the contract names it a listener of. Topics about which nothing
//! is said yet are heard too: an event stays with its sender until every listener has acknowledged it.

use std::{future::Future, marker::PhantomData, sync::Arc};

use onsale_kit::tasks::Tasks;
use onsale_proto::{
    EventPayload,
    events::v1::{
        ClaimReleased, GenerationCompleted, OrderCompleted, PaymentConfirmed, PaymentFailed, PaymentRefunded,
        QueueExpired, QueuePositionUpdate, QueueTurnGranted, QuotaInvitation, TicketGenerated,
    },
};
use onsale_storage::{
    Stores,
    messaging::{ConsumerConfig, Error, Handler, HandlerError, Message},
    postgres::Transaction,
};

use crate::{app::App, convert::events, domain::order::Fact};

/// An event that Notification does something about.
trait Heard: EventPayload + 'static {
    /// Does it, in the transaction of the inbox.
    fn heard(
        self,
        app: &App,
        transaction: &Transaction,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// Starts them all.
pub(crate) fn start(app: &Arc<App>, stores: &Stores, tasks: &Tasks) -> Result<(), Error> {
    hear::<OrderCompleted>(app, stores, tasks)?;
    hear::<TicketGenerated>(app, stores, tasks)?;
    hear::<PaymentRefunded>(app, stores, tasks)?;
    hear::<QuotaInvitation>(app, stores, tasks)?;
    hear::<GenerationCompleted>(app, stores, tasks)?;
    ignore::<PaymentConfirmed>(
        "order.completed tells the buyer, when there is something to tell",
        stores,
        tasks,
    )?;
    ignore::<PaymentFailed>("the buyer sees it at the checkout", stores, tasks)?;
    ignore::<ClaimReleased>("the customer let it go, or sees it in the shop", stores, tasks)?;
    ignore::<QueueTurnGranted>("a push, and pushes are not sent yet", stores, tasks)?;
    ignore::<QueueExpired>("a push, and pushes are not sent yet", stores, tasks)?;
    ignore::<QueuePositionUpdate>("a push, and pushes are not sent yet", stores, tasks)
}

fn hear<P: Heard>(app: &Arc<App>, stores: &Stores, tasks: &Tasks) -> Result<(), Error> {
    let hears = Hears::<P> { app: Arc::clone(app), payload: PhantomData };
    stores.listen::<P>(tasks, ConsumerConfig::default(), hears)
}

fn ignore<P: EventPayload>(why: &'static str, stores: &Stores, tasks: &Tasks) -> Result<(), Error> {
    stores.listen::<P>(tasks, ConsumerConfig::default(), Ignores { why })
}

/// Does something.
struct Hears<P> {
    app: Arc<App>,
    payload: PhantomData<fn() -> P>,
}

impl<P: Heard> Handler for Hears<P> {
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        message.payload::<P>()?.heard(&self.app, transaction).await
    }
}

/// Does nothing, for a reason.
struct Ignores {
    why: &'static str,
}

impl Handler for Ignores {
    async fn handle(&self, _: &Transaction, message: &Message) -> Result<(), HandlerError> {
        tracing::debug!(
            topic = message.topic,
            key = message.key,
            why = self.why,
            "nothing to say about this"
        );
        Ok(())
    }
}

impl Heard for OrderCompleted {
    async fn heard(self, app: &App, transaction: &Transaction) -> Result<(), HandlerError> {
        let (claim_id, order) = events::order_completed(self, app.language_default())?;
        Ok(app.order_fact(transaction, claim_id, Fact::Completed(Box::new(order))).await?)
    }
}

impl Heard for TicketGenerated {
    async fn heard(self, app: &App, transaction: &Transaction) -> Result<(), HandlerError> {
        let (claim_id, issued) = events::ticket_generated(self, app.language_default())?;
        Ok(app.order_fact(transaction, claim_id, Fact::Issued(Box::new(issued))).await?)
    }
}

impl Heard for PaymentRefunded {
    async fn heard(self, app: &App, transaction: &Transaction) -> Result<(), HandlerError> {
        let job = events::payment_refunded(self, app.language_default())?;
        Ok(app.job(transaction, job).await?)
    }
}

impl Heard for QuotaInvitation {
    async fn heard(self, app: &App, transaction: &Transaction) -> Result<(), HandlerError> {
        let job = events::quota_invitation(self, app.language_default())?;
        Ok(app.job(transaction, job).await?)
    }
}

impl Heard for GenerationCompleted {
    // Nobody is mailed: we have no address of an organizer. It says whose event it is, which decides who may see what could
    // not be delivered about it.
    async fn heard(self, app: &App, transaction: &Transaction) -> Result<(), HandlerError> {
        let (event_id, organizer_id) = events::generation_completed(&self)?;
        Ok(app.event_owner(transaction, event_id, organizer_id).await?)
    }
}
