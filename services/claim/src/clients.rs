//! The neighbors Claim calls: Queue about turns, Inventory about holds.

pub mod inventory;
pub mod queue;

use onsale_kit::error::{DOMAIN, Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Why a neighbor did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It refused for a reason that is for Claim's own caller to know. Nothing was done.
    #[error("{neighbor} refused: {reason}")]
    Refused {
        /// Who.
        neighbor: &'static str,
        /// Why.
        reason: Reason,
        /// The refusal with its details, to be passed on.
        status: Box<Status>,
    },
    /// It could not answer, or answered what it should not. It may have done what was asked.
    #[error("{neighbor} failed")]
    Failed {
        /// Who.
        neighbor: &'static str,
        /// What it said.
        #[source]
        status: Box<Status>,
    },
    /// It answered, and the answer makes no sense.
    #[error("the answer of {neighbor} makes no sense: {what}")]
    Answer {
        /// Who.
        neighbor: &'static str,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Error {
    /// The answer makes no sense in `what`.
    #[must_use]
    pub fn answer(neighbor: &'static str, what: &'static str) -> Self {
        Self::Answer { neighbor, what }
    }

    /// Sorts what `neighbor` answered; `passed_on` are the reasons that Claim's own callers may hear.
    fn of(neighbor: &'static str, status: Status, passed_on: &[Reason]) -> Self {
        let said = reason_of(&status);
        let reason = passed_on.iter().find(|reason| said.as_deref() == Some(reason.as_str()));
        match reason {
            Some(reason) => {
                // Without its headers, which are about the call to the neighbor.
                let details = status.details().to_vec();
                let status = Status::with_details(status.code(), status.message(), details.into());
                Self::Refused { neighbor, reason: *reason, status: Box::new(status) }
            }
            None => Self::Failed { neighbor, status: Box::new(status) },
        }
    }
}

/// The reason in `status`, if it is one of ours.
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
            Self::Answer { .. } => Kind::Internal,
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
