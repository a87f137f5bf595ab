//! The one door to the Redis Cluster, whatever happens to the cluster.
//!
//! Every call is bounded by the caller's deadline and by an overall timeout. What provably did not run (a moved slot, a
//! failover in progress) is sent again until then; what may have run is sent again only if the caller marked it
//! [`Command::idempotent`], and otherwise comes back as [`Error::Unknown`]. An acknowledged write can still be lost in
//! a failover: nothing in Redis may be the only copy of anything.

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

/// The door. Clones share the connections.
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
    /// Connects. Fails when the settings make no sense or none of the nodes answers.
    pub async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        config.validate()?;
        metrics::describe();
        let pool = ConnectionPool::connect(config).await?;
        Ok(Self { shared: Arc::new(Shared { config: config.clone(), pool }) })
    }

    /// The settings it was made with.
    #[must_use]
    pub fn config(&self) -> &RedisConfig {
        &self.shared.config
    }

    /// Where `service` keeps its keys.
    pub fn keyspace(&self, service: &str) -> Result<Keyspace, Error> {
        Ok(Keyspace::new(&self.shared.config.prefix, service)?)
    }

    /// Runs one command or script.
    pub async fn run<T: FromRedisValue>(&self, command: Command) -> Result<T, Error> {
        self.call(Call::One(command)).await
    }

    /// Runs the commands of a pipeline; `T` is a tuple or list of their answers. The first refusal is the answer of the
    /// with_code, though the other commands have run: Redis takes nothing back, not even with [`Pipeline::atomic`], which only
    /// runs none when one cannot even be queued.
    pub async fn run_all<T: FromRedisValue>(&self, pipeline: Pipeline) -> Result<T, Error> {
        self.call(Call::Many(pipeline)).await
    }

    /// The stream at `key`.
    #[must_use]
    pub fn stream<'a>(&'a self, key: &'a Key) -> Stream<'a> {
        Stream::new(self, key)
    }

    /// A reader that may block, on a connection of its own: a blocking command stalls everything behind it.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(self.shared.config.clone())
    }

    /// Sends a hint to the subscribers of a sharded channel. It may get lost, and nobody may be listening; see [`Hints`].
    pub async fn publish(&self, channel: &Key, payload: &[u8]) -> Result<(), Error> {
        // A hint that comes twice is as good as one that comes once.
        let command = Command::new("SPUBLISH").key(channel).arg(payload).idempotent();
        let _receivers: i64 = self.run(command).await?;
        Ok(())
    }

    /// Sends a message on an ordinary, unprefixed channel, for systems outside the mesh that listen there. Only our own
    /// constants may name the channel.
    pub async fn publish_outside(&self, channel: &'static str, payload: &[u8]) -> Result<(), Error> {
        let mut cmd = ::redis::cmd("PUBLISH");
        cmd.arg(channel).arg(payload);
        self.run_on_any_node("PUBLISH", cmd).await
    }

    /// Whether Redis answers; for the readiness of the process. One node is asked: a shard in failover must not take
    /// every pod out of service.
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

    /// Sends what any node can answer, once.
    async fn run_on_any_node(&self, command: &'static str, cmd: ::redis::Cmd) -> Result<(), Error> {
        let deadline = Deadline::current_or_after(self.shared.config.overall_timeout);
        let mut shared = self.shared.pool.get(command, deadline).await?;
        let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::RandomPrimary);
        let answer = deadline.bound(shared.connection.route_command(cmd, routing)).await;
        let result = answer.unwrap_or_else(|_passed| Err(error::timed_out())).and_then(Value::extract_error);
        result.map(|_value| ()).map_err(|source| Error::Unknown { command, source })
    }
}
