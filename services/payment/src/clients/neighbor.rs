//! Failed calls to a neighbor, and their meaning for our caller.

use onsale_kit::error::{DOMAIN, InvalidFields, Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// `attempt` completes "failed to …".
#[derive(Debug, thiserror::Error)]
pub(crate) enum NeighborError {
    /// The neighbor refused the call or could not be reached.
    #[error("failed to {attempt}")]
    Status {
        attempt: &'static str,
        #[source]
        source: Box<Status>,
    },
    /// The response breaks the neighbor's contract.
    #[error("failed to {attempt}: invalid response")]
    Response {
        attempt: &'static str,
        #[source]
        source: InvalidFields,
    },
}

impl NeighborError {
    pub(super) fn status(attempt: &'static str) -> impl Fn(Status) -> Self {
        move |source| Self::Status { attempt, source: Box::new(source) }
    }

    pub(super) fn response(attempt: &'static str) -> impl Fn(InvalidFields) -> Self {
        move |source| Self::Response { attempt, source }
    }
}

impl ServiceError for NeighborError {
    fn kind(&self) -> Kind {
        match self {
            Self::Status { source, .. } => match source.code() {
                Code::Unavailable => Kind::Unavailable,
                Code::DeadlineExceeded | Code::Cancelled => Kind::Timeout,
                Code::ResourceExhausted => Kind::Limited,
                Code::Aborted => Kind::Contended,
                _ => Kind::Internal,
            },
            Self::Response { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self.kind() {
            Kind::Unavailable => ErrorReason::DependencyUnavailable,
            Kind::Timeout => ErrorReason::DeadlineExceeded,
            Kind::Limited => ErrorReason::Overloaded,
            Kind::Contended => ErrorReason::Contended,
            _ => ErrorReason::Internal,
        }
        .into()
    }
}

/// Returns true if `status` carries this reason of the contract.
pub(super) fn has_reason(status: &Status, name: &'static str) -> bool {
    let reason = Reason::from_proto(name);
    status
        .get_details_error_info()
        .is_some_and(|info| info.reason == reason.as_str() && info.domain == DOMAIN)
}
