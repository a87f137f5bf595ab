//! Errors that the gateway itself returns, without a response of a service.

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::Status;

/// Reasons for a call without a response of the service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The contract does not make the method public.
    #[error("no service here has this method")]
    NotPublic,
    /// The service is unreachable, or its response ended early. The text is for the log only.
    #[error("failed to reach the service: {0}")]
    Unreachable(String),
    /// The response is not gRPC, for example from a proxy in between.
    #[error("the service returned HTTP status {0} instead of gRPC")]
    NotGrpc(http::StatusCode),
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::NotPublic => Kind::Unimplemented,
            Self::Unreachable(_) => Kind::Unavailable,
            Self::NotGrpc(_) => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        let reason = match self {
            Self::NotPublic => ErrorReason::MethodUnknown,
            Self::Unreachable(_) => ErrorReason::DependencyUnavailable,
            Self::NotGrpc(_) => ErrorReason::Internal,
        };
        reason.into()
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}
