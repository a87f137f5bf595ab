//! Client of the Redis Cluster.
//!
//! Every call is bounded by the caller's deadline and by an overall timeout. Until then, an attempt that certainly did
//! not run (a moved slot, a failover in progress) is repeated. An attempt that may have run is repeated only if the
//! caller marked the command [`Command::idempotent`]; otherwise the call fails with [`Error::Unknown`]. A failover can
//! lose acknowledged writes, so Redis must never hold the only copy of anything.

mod command;
mod config;
mod connection_pool;
mod error;
mod execute;
mod hints;
mod key;
mod metrics;
mod reconnect_limiter;
mod stream;

use std::sync::Arc;

pub use ::redis::{FromRedisValue, ToRedisArgs, Value};
use ::redis::{
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
    from_redis_value,
};
use onsale_kit::deadline::Deadline;
use tokio::time::Instant;

pub use self::{
    command::{Command, Pipeline, Script},
    config::RedisConfig,
    error::Error,
    hints::{Hint, Hints, Subscription},
    key::{Key, KeyError, Keyspace, PART_BYTES_MAX, Part},
    stream::{
        Appended, Claimed, Entry, GroupInfo, NewEntry, Pending, PendingSummary, Reader, Stream, StreamId,
        StreamIdError,
    },
};
use self::{
    connection_pool::ConnectionPool,
    execute::{Call, execute},
};

/// Client of the Redis Cluster. Clones share the connections.
#[derive(Clone)]
pub struct Redis {
    shared: Arc<Shared>,
}

struct Shared {
    config: RedisConfig,
    pool: ConnectionPool,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Redis").field("nodes", &self.shared.config.nodes).finish_non_exhaustive()
    }
}

impl Redis {
    /// Connects to the cluster. Fails if the settings are invalid or no node answers within `overall_timeout`.
    pub async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        config.validate()?;
        metrics::describe();
        let pool = ConnectionPool::connect(config).await?;
        Ok(Self { shared: Arc::new(Shared { config: config.clone(), pool }) })
    }

    /// Returns the settings of this client.
    #[must_use]
    pub fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    /// Returns the keyspace of `service`.
    pub fn keyspace(&self, service: &str) -> Result<Keyspace, Error> {
        Ok(Keyspace::new(&self.shared.config.prefix, service)?)
    }

    /// Runs one command or script.
    pub async fn run<T: FromRedisValue>(&self, command: Command) -> Result<T, Error> {
        self.call(Call::One(command)).await
    }

    /// Runs the commands of a pipeline; `T` is a tuple or list of their replies. If one command is refused, the call
    /// fails although the others have run: Redis rolls nothing back, not even with [`Pipeline::atomic`], which prevents
    /// only that some run when another cannot be queued.
    pub async fn run_all<T: FromRedisValue>(&self, pipeline: Pipeline) -> Result<T, Error> {
        self.call(Call::Many(pipeline)).await
    }

    /// Returns the stream at `key`.
    #[must_use]
    pub fn stream<'a>(&'a self, key: &'a Key) -> Stream<'a> {
        Stream::new(self, key)
    }

    /// Returns a reader for blocking reads, on a connection of its own, because a blocking command delays all commands
    /// behind it.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.config.clone())
    }

    /// Publishes a hint on a sharded channel. It may be lost, and there may be no subscriber; see [`Hints`].
    pub async fn publish(&self, channel: &Key, payload: &[u8]) -> Result<(), Error> {
        // Receiving a hint twice is harmless.
        let command = Command::new("SPUBLISH").key(channel).arg(payload).idempotent();
        let _receivers: i64 = self.run(command).await?;
        Ok(())
    }

    /// Publishes a message on an ordinary channel without a prefix, for systems outside of the mesh. The name must be a
    /// constant.
    pub async fn publish_outside(&self, channel: &'static str, payload: &[u8]) -> Result<(), Error> {
        let mut cmd = ::redis::cmd("PUBLISH");
        cmd.arg(channel).arg(payload);
        self.run_on_any_node("PUBLISH", cmd).await
    }

    /// Checks that one random master answers. A shard in failover must not make every pod unready.
    pub async fn ready(&self) -> Result<(), Error> {
        self.run_on_any_node("PING", ::redis::cmd("PING")).await
    }

    async fn call<T: FromRedisValue>(&self, call: Call) -> Result<T, Error> {
        let command = call.name();
        let begin = Instant::now();
        let result = match execute(&self.shared.pool, &self.shared.config, &call).await {
            Ok(value) => {
                from_redis_value(value).map_err(|error| Error::Reply { command, message: error.to_string() })
            }
            Err(error) => Err(error),
        };
        metrics::called(command, begin.elapsed());
        if let Err(error) = &result {
            metrics::failed(command, error.class());
        }
        result
    }

    /// Runs a command that any node can answer, without retries.
    async fn run_on_any_node(&self, command: &'static str, cmd: ::redis::Cmd) -> Result<(), Error> {
        let deadline = Deadline::current_or_after(self.shared.config.overall_timeout);
        let mut shared = self.shared.pool.get(command, deadline).await?;
        let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
        let answer = deadline.bound(shared.connection.route_command(cmd, routing)).await;
        let result = answer.unwrap_or_else(|_passed| Err(error::timed_out())).and_then(Value::extract_error);
        result.map(|_value| ()).map_err(|source| Error::Unknown { command, source })
    }
}
