//! What can go wrong at the Redis door, sorted by the one question that matters to a caller: did it run?

use std::time::Duration;

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::key::KeyError;

/// A failed call to Redis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting makes no sense. Nothing was sent.
    #[error("invalid redis settings: {message}")]
    Config {
        /// What is wrong.
        message: &'static str,
    },
    /// A part of a key was refused. Nothing was sent.
    #[error("invalid redis key")]
    Key(#[from] KeyError),
    /// The keys of one call lie under different tags, so no single node could answer. Nothing was sent.
    #[error("keys of {command} lie under different tags: {first} and {second}")]
    CrossTag {
        /// The command or script.
        command: &'static str,
        /// The tag of the first key.
        first: String,
        /// The first tag that differs.
        second: String,
    },
    /// The call names no key, so there is no node to send it to. Nothing was sent.
    #[error("{command} names no key")]
    NoKey {
        /// The command or script.
        command: &'static str,
    },
    /// The caller's time was over before the call could be sent. It did not run.
    #[error("the deadline passed before {command} was sent to redis")]
    Deadline {
        /// The command or script.
        command: &'static str,
    },
    /// Redis could not be reached, or did not serve the slot until the time was over. It did not run.
    #[error("redis could not serve {command}")]
    Unavailable {
        /// The command or script.
        command: &'static str,
        /// The last failure.
        #[source]
        source: RedisError,
    },
    /// The answer is lost: it may have run, now or a little later, or not at all.
    #[error("the answer of redis to {command} is lost; it may have run")]
    Unknown {
        /// The command or script.
        command: &'static str,
        /// The last failure.
        #[source]
        source: RedisError,
    },
    /// Redis, or a script of ours with `{err = 'CODE detail'}`, refused it.
    #[error("redis refused {command}: {code} {detail}")]
    Refused {
        /// The command or script.
        command: &'static str,
        /// The first word of the reply, for example `SOLDOUT`, `WRONGTYPE` or `ERR`.
        code: String,
        /// The rest of the reply.
        detail: String,
    },
    /// It ran, but its answer has another shape than the caller expects.
    #[error("redis answered {command} with something unexpected: {message}")]
    Reply {
        /// The command or script.
        command: &'static str,
        /// What was expected.
        message: String,
    },
}

impl Error {
    /// The code of a refusal, such as the `SOLDOUT` of a script; none for other failures.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused { code, .. } => Some(code),
            Self::Config { .. }
            | Self::Key(_)
            | Self::CrossTag { .. }
            | Self::NoKey { .. }
            | Self::Deadline { .. }
            | Self::Unavailable { .. }
            | Self::Unknown { .. }
            | Self::Reply { .. } => None,
        }
    }

    /// Whether the same call may succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Unavailable { .. } | Self::Unknown { .. })
    }

    /// The class, as a metric label.
    pub(super) fn class(&self) -> &'static str {
        match self {
            Self::Config { .. } | Self::Key(_) | Self::CrossTag { .. } | Self::NoKey { .. } => "invalid",
            Self::Deadline { .. } => "deadline",
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
            Self::Refused { .. } => "refused",
            Self::Reply { .. } => "reply",
        }
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Deadline { .. } => Kind::Timeout,
            Self::Unavailable { .. } | Self::Unknown { .. } => Kind::Unavailable,
            Self::Config { .. }
            | Self::Key(_)
            | Self::CrossTag { .. }
            | Self::NoKey { .. }
            | Self::Refused { .. }
            | Self::Reply { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self.kind() {
            Kind::Timeout => ErrorReason::DeadlineExceeded,
            Kind::Unavailable => ErrorReason::DependencyUnavailable,
            _ => ErrorReason::Internal,
        }
        .into()
    }

    fn retry_after(&self) -> Option<Duration> {
        // About half of a failover: long enough to help, short enough to be worth waiting for.
        self.is_transient().then_some(Duration::from_secs(2))
    }
}

/// What a failed attempt says about the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It did not run, and may be sent again.
    NotRun,
    /// It did not run; this node serves the key until its slot has moved.
    Ask {
        /// The node's host.
        host: String,
        /// The node's port.
        port: u16,
    },
    /// It did not run: the node does not know the script.
    NoScript,
    /// It may have run.
    Ambiguous,
    /// It was refused; another attempt would be refused too.
    Refused,
}

/// Judges a failed attempt.
///
/// Only an answer of a node proves that a command did not run. Everything that is not an answer counts as ambiguous,
/// even a refused connection: when the client fails to refresh its slot map, it hands that failure to every command in
/// flight, also to those that a healthy node is just carrying out.
pub(super) fn classify(error: &RedisError) -> Verdict {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Ask) => {
            match error.redirect_node().and_then(|(node, _)| split(node)) {
                Some((host, port)) => Verdict::Ask { host, port },
                None => Verdict::NotRun,
            }
        }
        ErrorKind::Server(
            ServerErrorKind::Moved
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            // What a command was refused for when it was queued is reported instead; so the node itself was not able to.
            | ServerErrorKind::ExecAbort,
        ) => Verdict::NotRun,
        ErrorKind::Server(ServerErrorKind::NoScript) => Verdict::NoScript,
        ErrorKind::Server(_) | ErrorKind::Extension => Verdict::Refused,
        // With an address it is about the node that a moving slot sent us to, and which the client does not know yet.
        ErrorKind::ClusterConnectionNotFound if error.detail().is_some() => Verdict::NotRun,
        _ => Verdict::Ambiguous,
    }
}

fn split(node: &str) -> Option<(String, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() { None } else { Some((host.to_owned(), port.parse().ok()?)) }
}

/// The failure of an attempt that was not answered in time.
pub(super) fn timed_out() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer in time").into()
}
