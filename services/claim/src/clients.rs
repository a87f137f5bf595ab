//! Calls to the neighbors: Queue validates turns, Inventory reserves, commits and releases holds.

pub(crate) mod inventory;
pub(crate) mod queue;

use onsale_kit::error::{DOMAIN, Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Failure of a call to a neighbor.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The neighbor did nothing, for a reason that Claim passes on to its own caller with all details.
    #[error("{neighbor} refused: {reason}")]
    Refused { neighbor: &'static str, reason: Reason, status: Box<Status> },
    /// The neighbor could not be reached, or failed for a reason that is not passed on. The call may have taken effect.
    #[error("{neighbor} failed")]
    Failed {
        neighbor: &'static str,
        #[source]
        status: Box<Status>,
    },
    /// The field `what` of the response is missing or malformed.
    #[error("invalid response from {neighbor}: {what}")]
    Response { neighbor: &'static str, what: &'static str },
}

impl Error {
    /// Classifies a failed call. `passed_on` lists the reasons that Claim passes on to its own callers.
    fn of(neighbor: &'static str, status: Status, passed_on: &[Reason]) -> Self {
        let stated = reason_of(&status);
        let reason = passed_on.iter().find(|reason| stated.as_deref() == Some(reason.as_str()));
        match reason {
            Some(reason) => {
                // The headers belong to the call to the neighbor and are dropped.
                let details = status.details().to_vec();
                let status = Status::with_details(status.code(), status.message(), details.into());
                Self::Refused { neighbor, reason: *reason, status: Box::new(status) }
            }
            None => Self::Failed { neighbor, status: Box::new(status) },
        }
    }
}

/// Returns the `ErrorInfo` reason of a status that a service of this system sent.
fn reason_of(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == DOMAIN).map(|info| info.reason)
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { .. } => Kind::State,
            Self::Failed { status, .. } => match status.code() {
                Code::DeadlineExceeded => Kind::Timeout,
                Code::Aborted => Kind::Contended,
                Code::ResourceExhausted => Kind::Limited,
                Code::Unavailable | Code::Cancelled | Code::Unknown => Kind::Unavailable,
                _ => Kind::Internal,
            },
            Self::Response { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        if let Self::Refused { reason, .. } = self {
            return *reason;
        }
        match self.kind() {
            Kind::Timeout => ErrorReason::DeadlineExceeded,
            Kind::Contended => ErrorReason::Contended,
            Kind::Limited => ErrorReason::Overloaded,
            Kind::Unavailable => ErrorReason::DependencyUnavailable,
            _ => ErrorReason::Internal,
        }
        .into()
    }
}
