//! What a neighbor answered instead of what was asked for.

use onsale_kit::error::{DOMAIN, InvalidFields, Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// A neighbor could not be asked, or made no sense.
#[derive(Debug, thiserror::Error)]
pub enum NeighborError {
    /// It refused, or could not be reached.
    #[error("failed to {attempt}")]
    Status {
        /// What was asked.
        attempt: &'static str,
        /// What it said.
        #[source]
        source: Box<Status>,
    },
    /// Its answer is not what its contract says.
    #[error("the answer to {attempt} makes no sense")]
    Answer {
        /// What was asked.
        attempt: &'static str,
        /// Why not.
        #[source]
        source: InvalidFields,
    },
}

impl NeighborError {
    pub(super) fn status(attempt: &'static str) -> impl Fn(Status) -> Self {
        move |source| Self::Status { attempt, source: Box::new(source) }
    }

    pub(super) fn answer(attempt: &'static str) -> impl Fn(InvalidFields) -> Self {
        move |source| Self::Answer { attempt, source }
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
            Self::Answer { .. } => Kind::Internal,
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

/// Whether `status` gives this reason of ours.
pub(super) fn has_reason(status: &Status, name: &'static str) -> bool {
    let reason = Reason::from_proto(name);
    status
        .get_details_error_info()
        .is_some_and(|info| info.reason == reason.as_str() && info.domain == DOMAIN)
}
