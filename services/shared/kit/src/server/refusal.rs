//! Errors that the chassis itself returns instead of, or after, a handler's response.

use std::time::Duration;

use onsale_proto::r#type::v1::ErrorReason;
use tonic::Status;

use crate::{
    backoff::jittered,
    error::{Kind, Reason, ServiceError, status},
};

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no service here has this method")]
    MethodUnknown,
    #[error("this version does not implement the method")]
    MethodNotImplemented,
    #[error("the deadline has passed")]
    DeadlineExceeded,
    #[error("the service is overloaded")]
    Overloaded { retry_after: Duration },
    #[error("the service is stopping")]
    Draining { retry_after: Duration },
    #[error("the request is larger than {bytes_max} bytes")]
    RequestTooLarge { bytes_max: usize },
    /// A panic, or a status without a reason. Already logged where it occurred.
    #[error("internal error")]
    Internal,
}

impl ServiceError for Refusal {
    fn kind(&self) -> Kind {
        match self {
            Self::MethodUnknown | Self::MethodNotImplemented => Kind::Unimplemented,
            Self::DeadlineExceeded => Kind::Timeout,
            Self::Overloaded { .. } => Kind::Limited,
            Self::Draining { .. } => Kind::Unavailable,
            Self::RequestTooLarge { .. } => Kind::Invalid,
            Self::Internal => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        let reason = match self {
            Self::MethodUnknown => ErrorReason::MethodUnknown,
            Self::MethodNotImplemented => ErrorReason::MethodNotImplemented,
            Self::DeadlineExceeded => ErrorReason::DeadlineExceeded,
            Self::Overloaded { .. } => ErrorReason::Overloaded,
            Self::Draining { .. } => ErrorReason::Draining,
            Self::RequestTooLarge { .. } => ErrorReason::RequestTooLarge,
            Self::Internal => ErrorReason::Internal,
        };
        reason.into()
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Overloaded { retry_after } | Self::Draining { retry_after } => Some(*retry_after),
            Self::MethodUnknown
            | Self::MethodNotImplemented
            | Self::DeadlineExceeded
            | Self::RequestTooLarge { .. }
            | Self::Internal => None,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        // Not logged: refusals are normal operation and come in thousands. Metrics count them.
        status(&refusal, refusal.to_string())
    }
}

/// Returns a random time from 10 to 100 % of `most`, so that refused callers do not all return at the same time.
pub(crate) fn random_wait(most: Duration) -> Duration {
    jittered(most, 10..=100)
}
