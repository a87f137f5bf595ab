//! Where the Redis Cluster is and how long we wait for it.

use std::time::Duration;

use onsale_kit::{backoff::BackoffConfig, config::Secret};
use serde::Deserialize;

use super::{Error, key::Keyspace};

/// Settings of the door to Redis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// Nodes to begin with, as `redis://host:port`, without a password; the others are learned from them.
    pub nodes: Vec<String>,
    /// What every key begins with; keeps environments and test runs apart.
    pub prefix: String,
    /// Shared cluster connections. Each is multiplexed, so two are enough: one serves while the other is replaced.
    #[serde(default = "defaults::connections")]
    pub connections: u32,
    /// How long one node may take to answer one attempt.
    #[serde(with = "humantime_serde", default = "defaults::command_timeout")]
    pub command_timeout: Duration,
    /// How long a call may take with all its attempts; a nearer deadline of the caller wins.
    #[serde(with = "humantime_serde", default = "defaults::overall_timeout")]
    pub overall_timeout: Duration,
    /// How long connecting to one node may take.
    #[serde(with = "humantime_serde", default = "defaults::connect_timeout")]
    pub connect_timeout: Duration,
    /// The waits between attempts. They end with the overall timeout at the latest.
    #[serde(default = "defaults::retry")]
    pub retry: BackoffConfig,
    /// How often every hint channel is subscribed again; see [`Hints`](super::Hints).
    #[serde(with = "humantime_serde", default = "defaults::resubscribe_every")]
    pub resubscribe_every: Duration,
    /// The ACL user; unset: the default user.
    #[serde(default, deserialize_with = "onsale_kit::config::optional")]
    pub username: Option<String>,
    /// Its password; unset: none is sent.
    #[serde(default, deserialize_with = "onsale_kit::config::optional")]
    pub password: Option<Secret>,
}

impl RedisConfig {
    /// The defaults, for the cluster that `nodes` belong to.
    #[must_use]
    pub fn new(nodes: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            nodes,
            prefix: prefix.into(),
            connections: defaults::connections(),
            command_timeout: defaults::command_timeout(),
            overall_timeout: defaults::overall_timeout(),
            connect_timeout: defaults::connect_timeout(),
            retry: defaults::retry(),
            resubscribe_every: defaults::resubscribe_every(),
            username: None,
            password: None,
        }
    }

    /// Refuses what could only fail later: no node, no connection, a span of zero, a prefix that makes no key.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message| Err(Error::Config { message });
        if self.nodes.is_empty() {
            return refuse("nodes is empty");
        }
        // Addresses are logged; a password has its own key.
        if self.nodes.iter().any(|node| !node.starts_with("redis://") || node.contains('@')) {
            return refuse("a node is not of the form redis://host:port");
        }
        if self.connections == 0 {
            return refuse("connections is 0");
        }
        let spans =
            [self.command_timeout, self.overall_timeout, self.connect_timeout, self.resubscribe_every];
        if spans.iter().any(Duration::is_zero) {
            return refuse("a timeout is 0");
        }
        Keyspace::new(&self.prefix, "check")?;
        Ok(())
    }
}

mod defaults {
    use super::{BackoffConfig, Duration};

    pub(super) fn connections() -> u32 {
        2
    }

    pub(super) fn command_timeout() -> Duration {
        Duration::from_millis(500)
    }

    /// Above what a failover takes with the usual node timeout of 2 s, which is about 4 s.
    pub(super) fn overall_timeout() -> Duration {
        Duration::from_secs(8)
    }

    pub(super) fn connect_timeout() -> Duration {
        Duration::from_millis(500)
    }

    pub(super) fn retry() -> BackoffConfig {
        BackoffConfig {
            initial: Duration::from_millis(10),
            max: Duration::from_millis(250),
            multiplier: 2,
            attempts_max: 200,
        }
    }

    pub(super) fn resubscribe_every() -> Duration {
        Duration::from_millis(500)
    }
}
