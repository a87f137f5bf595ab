//! Consumers of a service: one for each topic whose listener it is in the contract. Either a function handles the topic's
//! events, or they are ignored for a stated reason. Without a consumer, the events would stay in their sender's outbox
//! forever.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use onsale_kit::tasks::Tasks;
//! # use onsale_proto::events::v1::{OrderCompleted, PaymentFailed};
//! # use onsale_storage::Stores;
//! # use onsale_storage::messaging::{ConsumerConfig, Error, HandlerError, Listeners, Received};
//! # use onsale_storage::postgres::Transaction;
//! # struct App;
//! fn start(app: &Arc<App>, stores: &Stores, tasks: &Tasks) -> Result<(), Error> {
//!     Listeners::new(stores, ConsumerConfig::default(), Arc::clone(app))
//!         .on(order_completed)
//!         .ignore::<PaymentFailed>("the buyer sees it at the checkout")
//!         .start(tasks)
//! }
//!
//! async fn order_completed(
//!     app: Arc<App>,
//!     transaction: Transaction,
//!     event: Received<OrderCompleted>,
//! ) -> Result<(), HandlerError> {
//!     Ok(())
//! }
//! ```

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use onsale_kit::tasks::Tasks;
use onsale_proto::EventPayload;
use onsale_types::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{ConsumerConfig, Error, Handler, HandlerError, Message};
use crate::Stores;
use crate::postgres::Transaction;

type Run = Box<dyn FnOnce(CancellationToken) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Event as its listener receives it.
#[derive(Clone, Debug)]
pub struct Received<P> {
    /// Id of the event, the same at every delivery.
    pub event_id: Uuid,
    /// Time of the change that the event reports, by its sender's clock.
    pub occur_time: Timestamp,
    /// The decoded payload. A payload that does not decode goes to the dead letters and reaches no listener.
    pub payload: P,
}

/// The consumers of one service, which share `state`.
#[must_use = "no consumer runs before `start`"]
pub struct Listeners<S> {
    stores: Stores,
    config: ConsumerConfig,
    state: S,
    consumers: Result<Vec<(&'static str, Run)>, Error>,
}

impl<S: Clone + Send + Sync + 'static> Listeners<S> {
    /// Starts a list of consumers for the service of `stores`, whose name replaces the group in `config`. Handlers get
    /// a clone of `state`, usually the `Arc` of the service's `App`.
    pub fn new(stores: &Stores, config: ConsumerConfig, state: S) -> Self {
        Self { stores: stores.clone(), config, state, consumers: Ok(Vec::new()) }
    }

    /// Adds a consumer of `P`'s topic. `handler` runs in the transaction of the inbox row (see [`Handler`]).
    pub fn on<P, F, Fut, E>(self, handler: F) -> Self
    where
        P: EventPayload + 'static,
        F: Fn(S, Transaction, Received<P>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send,
        E: Into<HandlerError>,
    {
        let listener = Listener { state: self.state.clone(), handler, payload: PhantomData::<fn(P)> };
        self.add::<P>(listener)
    }

    /// Adds a consumer that acknowledges the events of `P`'s topic without reading their payload.
    pub fn ignore<P: EventPayload>(self, reason: &'static str) -> Self {
        self.add::<P>(Ignored { reason })
    }

    /// Starts the consumers in `tasks`. If one of them is invalid, none starts.
    pub fn start(self, tasks: &Tasks) -> Result<(), Error> {
        for (topic, run) in self.consumers? {
            tasks.spawn(topic, run(tasks.token()));
        }
        Ok(())
    }

    fn add<P: EventPayload>(mut self, handler: impl Handler) -> Self {
        let added = self.consumers.and_then(|mut consumers| {
            let consumer = self.stores.consumer::<P, _>(self.config.clone(), handler)?;
            let run: Run = Box::new(|shutdown| Box::pin(consumer.run(shutdown)));
            consumers.push((P::TOPIC, run));
            Ok(consumers)
        });
        self.consumers = added;
        self
    }
}

struct Listener<S, P, F> {
    state: S,
    handler: F,
    payload: PhantomData<fn(P)>,
}

impl<S, P, F, Fut, E> Handler for Listener<S, P, F>
where
    S: Clone + Send + Sync + 'static,
    P: EventPayload + 'static,
    F: Fn(S, Transaction, Received<P>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<HandlerError>,
{
    async fn handle(&self, transaction: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let payload = message.payload()?;
        let event = Received { event_id: message.id, occur_time: message.occur_time, payload };
        (self.handler)(self.state.clone(), transaction.clone(), event).await.map_err(Into::into)
    }
}

struct Ignored {
    reason: &'static str,
}

impl Handler for Ignored {
    async fn handle(&self, _: &Transaction, message: &Message) -> Result<(), HandlerError> {
        let (topic, key, reason) = (&message.topic, &message.key, self.reason);
        tracing::debug!(topic, key, reason, "event ignored");
        Ok(())
    }
}
