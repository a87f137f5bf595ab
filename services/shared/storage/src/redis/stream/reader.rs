//! Blocking reads, on a cluster connection of their own.
//!
//! A blocking command delays all commands behind it on its connection, so every reader has its own and reads one stream
//! at a time. Dropping a running read closes the connection; otherwise the next read would wait behind it, and entries
//! delivered to it would stay pending until they are claimed.

use std::time::Duration;

use redis::{
    RedisError, Value,
    cluster_async::ClusterConnection,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};

use super::{Entry, StreamId, read_after_command, read_group_command, reply};
use crate::redis::{
    Command, Error, Key, RedisConfig, connection_pool,
    error::{Verdict, classify, timed_out},
    metrics,
};

/// Reader for one loop, which must not be shared.
pub struct Reader {
    config: RedisConfig,
    /// `None` before the first read and after a failed or dropped one.
    connection: Option<ClusterConnection>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("connected", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}

impl Reader {
    pub(in crate::redis) fn new(config: RedisConfig) -> Self {
        Self { config, connection: None }
    }

    /// Reads entries that were never delivered to the group, and blocks up to `block` for the first. Returns no entries
    /// if none arrive.
    ///
    /// Makes one attempt; the caller's loop retries with its own backoff. If the reply is lost, the entries are pending
    /// for `consumer`.
    pub async fn read_group(
        &mut self,
        key: &Key,
        group: &str,
        consumer: &str,
        count: usize,
        block: Duration,
    ) -> Result<Vec<Entry>, Error> {
        self.read(read_group_command(key, group, consumer, count, Some(block)), block).await
    }

    /// Reads entries after `after`, without a group, and blocks up to `block` for the first.
    pub async fn read_after(
        &mut self,
        key: &Key,
        after: StreamId,
        count: usize,
        block: Duration,
    ) -> Result<Vec<Entry>, Error> {
        self.read(read_after_command(key, after, count, Some(block)), block).await
    }

    async fn read(&mut self, command: Command, block: Duration) -> Result<Vec<Entry>, Error> {
        let name = command.name();
        let slot = command.routing_key()?.slot();
        let result = self.attempt(&command, slot, block).await;
        if let Err(error) = &result {
            metrics::failed(name, error.class());
        }
        reply::one_stream(name, result?)
    }

    async fn attempt(&mut self, command: &Command, slot: u16, block: Duration) -> Result<Value, Error> {
        let name = command.name();
        let limit = block.saturating_add(self.config.command_timeout);
        // Taken out during the read, so that dropping this future drops the connection.
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.connect(limit).await.map_err(|source| Error::Unavailable { command: name, source })?
            }
        };
        let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
        let answer = connection.route_command(command.render(false), RoutingInfo::SingleNode(route));
        let answer = match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.and_then(Value::extract_error),
            Err(_elapsed) => Err(timed_out()),
        };
        match answer {
            Ok(value) => {
                self.connection = Some(connection);
                Ok(value)
            }
            Err(source) => match classify(&source) {
                Verdict::Refused | Verdict::NoScript => {
                    self.connection = Some(connection);
                    Err(refused(name, &source))
                }
                // A new connection reads the current topology.
                Verdict::NotRun | Verdict::Ask { .. } => Err(Error::Unavailable { command: name, source }),
                Verdict::Ambiguous => Err(Error::Unknown { command: name, source }),
            },
        }
    }

    async fn connect(&self, limit: Duration) -> Result<ClusterConnection, RedisError> {
        let client = connection_pool::builder(&self.config)
            .response_timeout(limit)
            .overall_response_timeout(Some(limit))
            .build()?;
        // Connecting must not wait for a frozen node as long as a read may block.
        tokio::time::timeout(self.config.overall_timeout, client.get_async_connection())
            .await
            .unwrap_or_else(|_elapsed| Err(timed_out()))
    }
}

fn refused(command: &'static str, source: &RedisError) -> Error {
    let code = source.code().unwrap_or("ERR").to_owned();
    Error::Refused { command, code, detail: source.detail().unwrap_or_default().to_owned() }
}
