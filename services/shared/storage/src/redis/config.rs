//! Settings of the Redis client.

use std::time::Duration;

use onsale_kit::{backoff::BackoffConfig, config::Secret};
use serde::Deserialize;

use super::{Error, key::Keyspace};

/// Nodes, timeouts and credentials of the Redis client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// Nodes for the first connection, as `redis://host:port` without a password. The client learns the others from
    /// them.
    pub nodes: Vec<String>,
    /// First part of every key. Separates environments and test runs.
    pub prefix: String,
    /// Number of shared cluster connections (default 2). Each is multiplexed: one serves while the other is replaced.
    #[serde(default = "defaults::connections")]
    pub connections: u32,
    /// Timeout of one attempt on one node (default 500 ms).
    #[serde(with = "humantime_serde", default = "defaults::command_timeout")]
    pub command_timeout: Duration,
    /// Timeout of a call with all its attempts (default 8 s). A nearer deadline of the caller applies instead.
    #[serde(with = "humantime_serde", default = "defaults::overall_timeout")]
    pub overall_timeout: Duration,
    /// Timeout of connecting to one node (default 500 ms).
    #[serde(with = "humantime_serde", default = "defaults::connect_timeout")]
    pub connect_timeout: Duration,
    /// Waits between attempts, within the overall timeout.
    #[serde(default = "defaults::retry")]
    pub retry: BackoffConfig,
    /// Interval at which every hint channel is subscribed again (default 500 ms); see [`Hints`](super::Hints).
    #[serde(with = "humantime_serde", default = "defaults::resubscribe_every")]
    pub resubscribe_every: Duration,
    /// ACL user. `None`: the default user.
    #[serde(default, deserialize_with = "onsale_kit::config::optional")]
    pub username: Option<String>,
    /// Password of the user. `None`: no password is sent.
    #[serde(default, deserialize_with = "onsale_kit::config::optional")]
    pub password: Option<Secret>,
}

impl RedisConfig {
    /// Creates default settings for the cluster of `nodes`.
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

    /// Refuses settings without a node or connection, with a timeout of 0, or with a prefix that is not valid in a key.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message| Err(Error::Config { message });
        if self.nodes.is_empty() {
            return refuse("nodes must not be empty");
        }
        // Addresses are logged, so a password must not be part of them.
        if self.nodes.iter().any(|node| !node.starts_with("redis://") || node.contains('@')) {
            return refuse("every node must have the form redis://host:port");
        }
        if self.connections == 0 {
            return refuse("connections must not be 0");
        }
        let spans =
            [self.command_timeout, self.overall_timeout, self.connect_timeout, self.resubscribe_every];
        if spans.iter().any(Duration::is_zero) {
            return refuse("timeouts and intervals must not be 0");
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

    /// Exceeds the duration of a failover, which is about 4 s with the usual node timeout of 2 s.
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
