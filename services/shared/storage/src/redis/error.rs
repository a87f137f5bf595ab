//! Errors of the Redis client, distinguished by whether the command ran.

use std::time::Duration;

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::key::KeyError;

/// A failed call to Redis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is invalid. Nothing was sent.
    #[error("invalid redis settings: {message}")]
    Config {
        /// Violated rule, for the message.
        message: &'static str,
    },
    /// A part of a key is invalid. Nothing was sent.
    #[error("invalid redis key")]
    Key(#[from] KeyError),
    /// The keys of one call have different tags, so no single node can serve it. Nothing was sent.
    #[error("keys of {command} have different tags: {first} and {second}")]
    CrossTag {
        /// Name of the command or script.
        command: &'static str,
        /// Tag of the first key.
        first: String,
        /// First tag that differs.
        second: String,
    },
    /// The call has no key, so no node can be chosen. Nothing was sent.
    #[error("{command} has no key")]
    NoKey {
        /// Name of the command or script.
        command: &'static str,
    },
    /// The caller's deadline passed before the call was sent. It did not run.
    #[error("the deadline passed before {command} was sent to redis")]
    Deadline {
        /// Name of the command or script.
        command: &'static str,
    },
    /// Redis was unreachable or did not serve the slot until the deadline. The command did not run.
    #[error("redis is unavailable for {command}")]
    Unavailable {
        /// Name of the command or script.
        command: &'static str,
        /// Error of the last attempt.
        #[source]
        source: RedisError,
    },
    /// The reply was lost. The command may have run, may run later, or may never run.
    #[error("the reply of redis to {command} was lost, it may have run")]
    Unknown {
        /// Name of the command or script.
        command: &'static str,
        /// Error of the last attempt.
        #[source]
        source: RedisError,
    },
    /// Redis refused the command, or one of our scripts did with `{err = 'CODE detail'}`.
    #[error("redis refused {command}: {code} {detail}")]
    Refused {
        /// Name of the command or script.
        command: &'static str,
        /// First word of the reply, for example `SOLDOUT`, `WRONGTYPE` or `ERR`.
        code: String,
        /// Remaining text of the reply.
        detail: String,
    },
    /// The command ran, but its reply has an unexpected type.
    #[error("unexpected reply of redis to {command}: {message}")]
    Reply {
        /// Name of the command or script.
        command: &'static str,
        /// Mismatch between the reply and the expected type.
        message: String,
    },
}

impl Error {
    /// Returns the code of a refusal, such as `SOLDOUT` from a script; `None` for other errors.
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

    /// Returns true if the same call may succeed within seconds.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Deadline { .. } | Self::Unavailable { .. } | Self::Unknown { .. })
    }

    /// Returns the error class for the metric label.
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
        // About half of a failover.
        self.is_transient().then_some(Duration::from_secs(2))
    }
}

/// Conclusion from a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The command did not run and may be sent again.
    NotRun,
    /// The command did not run. The named node serves the key while its slot moves.
    Ask { host: String, port: u16 },
    /// The command did not run because the node does not know the script.
    NoScript,
    /// The command may have run.
    Ambiguous,
    /// The command was refused; a retry would be refused too.
    Refused,
}

/// Classifies a failed attempt.
///
/// Only a reply of a node proves that a command did not run. All other errors are ambiguous, even a refused connection:
/// if the client fails to refresh its slot map, it returns that error to every command in flight, including those that
/// a healthy node is running.
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
            // `send` reports a queueing error instead of this, so the node itself was not able to run the transaction.
            | ServerErrorKind::ExecAbort,
        ) => Verdict::NotRun,
        ErrorKind::Server(ServerErrorKind::NoScript) => Verdict::NoScript,
        ErrorKind::Server(_) | ErrorKind::Extension => Verdict::Refused,
        // With an address, the error is about a node that serves a moving slot and that the client does not know yet.
        ErrorKind::ClusterConnectionNotFound if error.detail().is_some() => Verdict::NotRun,
        _ => Verdict::Ambiguous,
    }
}

fn split(node: &str) -> Option<(String, u16)> {
    let (host, port) = node.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() { None } else { Some((host.to_owned(), port.parse().ok()?)) }
}

/// Returns the error of an attempt that timed out.
pub(super) fn timed_out() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, "timed out waiting for a reply").into()
}
