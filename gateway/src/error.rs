//! What the gateway itself answers instead of a service.

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::Status;

/// Why a call was not answered by a service.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The contract does not open the method to the outside.
    #[error("no service here has this method")]
    NotPublic,
    /// The service cannot be reached, or broke off.
    #[error("failed to reach the service: {0}")]
    Unreachable(String),
    /// Something answered that is no gRPC service.
    #[error("the service answered HTTP status {0} instead of gRPC")]
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
