//! Sharded Pub/Sub channels for hints.
//!
//! A hint says that there may be something new; it never carries the only copy of it. Messages are lost in a failover,
//! while a slot moves, and if a subscriber is slow. Where a gap matters, read a stream and use the hint to read it
//! earlier.
//!
//! After a failover the client does not restore subscriptions. Every channel is therefore subscribed again each
//! `resubscribe_every` (default 500 ms), one command each, which changes nothing for an intact subscription.

use std::{
    collections::HashMap,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{Stream, StreamExt, stream};
use onsale_kit::tasks::Tasks;
use parking_lot::Mutex;
use redis::{ProtocolVersion, PushInfo, PushKind, RedisError, Value, cluster_async::ClusterConnection};
use tokio::sync::{Notify, broadcast};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use tokio_util::sync::CancellationToken;

use super::{Key, Redis, RedisConfig, connection_pool, error::timed_out, metrics};

/// Maximum number of hints that wait for a slow subscriber. Older ones are dropped, and the subscriber receives
/// [`Hint::Gap`].
const BUFFER_HINTS_MAX: usize = 64;

/// Maximum number of subscribe commands in flight.
const SUBSCRIBE_CONCURRENCY: usize = 32;

/// Notice to a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Payload of a published message.
    Message(Arc<[u8]>),
    /// Messages may be missing: act as if one had arrived. Every subscription starts with this.
    Gap,
}

/// Subscriptions of one process, on one connection. Clones share them.
#[derive(Clone)]
pub struct Hints {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Hints {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Hints").field("channels", &self.shared.channels.lock().len()).finish()
    }
}

struct Shared {
    channels: Mutex<HashMap<String, Channel>>,
    /// Wakes the loop for a new channel, which then does not wait for the next round.
    added: Notify,
}

struct Channel {
    sender: broadcast::Sender<Hint>,
    /// True once Redis has confirmed the subscription on the current connection.
    confirmed: bool,
}

impl Hints {
    /// Starts the loop that maintains all subscriptions, as a task of `tasks`.
    #[must_use]
    pub fn start(redis: &Redis, tasks: &Tasks) -> Self {
        let shared = Arc::new(Shared { channels: Mutex::default(), added: Notify::new() });
        let subscriptions = SubscriptionLoop {
            config: redis.config().clone(),
            shared: Arc::clone(&shared),
            connection: None,
        };
        tasks.spawn("redis hints", subscriptions.run(tasks.token().clone()));
        Self { shared }
    }

    /// Subscribes to a channel. The subscription ends when it is dropped.
    #[must_use]
    pub fn subscribe(&self, channel: &Key) -> Subscription {
        let mut channels = self.shared.channels.lock();
        let receiver = match channels.get(channel.as_str()) {
            Some(known) => known.sender.subscribe(),
            None => {
                let (sender, receiver) = broadcast::channel(BUFFER_HINTS_MAX);
                channels.insert(channel.as_str().to_owned(), Channel { sender, confirmed: false });
                self.shared.added.notify_one();
                receiver
            }
        };
        Subscription { has_started: false, hints: BroadcastStream::new(receiver) }
    }
}

/// Hints of one channel, as a stream that ends only with the process.
#[derive(Debug)]
pub struct Subscription {
    has_started: bool,
    hints: BroadcastStream<Hint>,
}

impl Stream for Subscription {
    type Item = Hint;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Hint>> {
        if !self.has_started {
            self.has_started = true;
            return Poll::Ready(Some(Hint::Gap));
        }
        self.hints.poll_next_unpin(context).map(|hint| match hint {
            Some(Ok(hint)) => Some(hint),
            Some(Err(BroadcastStreamRecvError::Lagged(count))) => {
                metrics::hints_dropped(count);
                Some(Hint::Gap)
            }
            None => None,
        })
    }
}

/// Loop that maintains the subscriptions of [`Hints`].
struct SubscriptionLoop {
    config: RedisConfig,
    shared: Arc<Shared>,
    connection: Option<ClusterConnection>,
}

// Not a `kit::worker`: a round keeps no result, so shutdown drops it instead of waiting 8 s for a frozen node.
impl SubscriptionLoop {
    async fn run(mut self, shutdown: CancellationToken) {
        let mut round = tokio::time::interval(self.config.resubscribe_every);
        round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _instant = round.tick() => {}
                () = self.shared.added.notified() => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.subscribe_all() => {}
            }
        }
    }

    async fn subscribe_all(&mut self) {
        self.unsubscribe_unused().await;
        let channels: Vec<String> = self.shared.channels.lock().keys().cloned().collect();
        if channels.is_empty() {
            return;
        }
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "failed to connect for redis hints, retrying next round");
                return;
            }
        };
        let results: Vec<Result<(), RedisError>> = stream::iter(channels)
            .map(|channel| {
                let mut connection = connection.clone();
                async move { connection.ssubscribe(channel).await }
            })
            .buffer_unordered(SUBSCRIBE_CONCURRENCY)
            .collect()
            .await;
        // A refusal (moved slot, cluster down) passes by a later round. A timeout means that the node may be frozen,
        // which only a new connection finds out.
        if results.iter().any(|result| matches!(result, Err(error) if error.is_timeout())) {
            self.disconnect();
        }
    }

    /// Unsubscribes from channels without a receiver.
    async fn unsubscribe_unused(&mut self) {
        let unused: Vec<String> = {
            let mut channels = self.shared.channels.lock();
            let unused: Vec<String> = channels
                .iter()
                .filter(|(_, channel)| channel.sender.receiver_count() == 0)
                .map(|(name, _)| name.clone())
                .collect();
            for name in &unused {
                channels.remove(name);
            }
            unused
        };
        let Some(connection) = &mut self.connection else { return };
        for name in unused {
            // If this fails, messages of the channel are dropped on arrival.
            let _ignored = connection.sunsubscribe(name).await;
        }
    }

    async fn connected(&mut self) -> Result<ClusterConnection, RedisError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let shared = Arc::clone(&self.shared);
        let client = connection_pool::builder(&self.config)
            .response_timeout(self.config.command_timeout)
            .overall_response_timeout(Some(self.config.overall_timeout))
            .use_protocol(ProtocolVersion::RESP3)
            .push_sender(move |push: PushInfo| -> Result<(), Infallible> {
                shared.handle_push(push);
                Ok(())
            })
            .build()?;
        let connect = tokio::time::timeout(self.config.overall_timeout, client.get_async_connection());
        let connection = connect.await.unwrap_or_else(|_elapsed| Err(timed_out()))?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    fn disconnect(&mut self) {
        self.connection = None;
        for channel in self.shared.channels.lock().values_mut() {
            channel.confirmed = false;
        }
    }
}

impl Shared {
    /// Handles a message that Redis pushes. Runs on the connection's task, so it must not block.
    fn handle_push(&self, push: PushInfo) {
        let mut fields = push.data.into_iter();
        let Some(Value::BulkString(name)) = fields.next() else {
            if push.kind == PushKind::Disconnection {
                self.mark_all_unconfirmed();
            }
            return;
        };
        let Ok(name) = String::from_utf8(name) else { return };
        let mut channels = self.channels.lock();
        let Some(channel) = channels.get_mut(&name) else { return };
        // Sending fails only if all receivers are gone.
        match push.kind {
            PushKind::SMessage => {
                if let Some(Value::BulkString(payload)) = fields.next() {
                    let _ignored = channel.sender.send(Hint::Message(payload.into()));
                }
            }
            // The first confirmation on a connection: earlier messages may be missing.
            PushKind::SSubscribe if !channel.confirmed => {
                channel.confirmed = true;
                let _ignored = channel.sender.send(Hint::Gap);
            }
            PushKind::SUnsubscribe => channel.confirmed = false,
            _ => {}
        }
    }

    /// Marks all channels as unconfirmed, because a lost node connection does not name its subscriptions.
    fn mark_all_unconfirmed(&self) {
        for channel in self.channels.lock().values_mut() {
            channel.confirmed = false;
        }
    }
}
