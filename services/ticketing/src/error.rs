//! Errors of Ticketing's use cases, with the kind, reason and metadata that callers receive.

use std::time::Duration;

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::{ticketing::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, messaging::HandlerError, postgres};
use onsale_types::{ClaimId, EventId, GenerationId, TicketId};
use tonic::Status;

use crate::domain::{code::CodeInvalid, document::DocumentError};

/// Time after which a caller may retry to issue tickets that are still being generated.
const NOT_GENERATED_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Most variants are reasons of the contract, which `error_reason.proto` describes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The ticket does not exist or belongs to another customer.
    #[error("there is no ticket {ticket_id}")]
    TicketNotFound { ticket_id: TicketId },
    #[error(transparent)]
    CodeInvalid(#[from] CodeInvalid),
    #[error("a ticket of claim {claim_id} was checked in")]
    TicketCheckedIn { claim_id: ClaimId },
    #[error("the tickets of event {event_id} are still being generated")]
    NotGenerated { event_id: EventId },
    #[error("a ticket of claim {claim_id} belongs to another claim, or the claim's tickets are void")]
    IssuedToAnother { claim_id: ClaimId },
    #[error("there is no generation {generation_id}")]
    GenerationNotFound { generation_id: GenerationId },
    #[error("event {event_id} has no generation")]
    EventHasNoGeneration { event_id: EventId },
    /// The event does not exist or is another organizer's draft.
    #[error("there is no event {event_id}")]
    EventNotFound { event_id: EventId },
    #[error("event {event_id} belongs to another organizer")]
    EventNotOwned { event_id: EventId },
    #[error("stored data is inconsistent: {what}")]
    Inconsistent { what: &'static str },
    #[error("failed to render a document")]
    Document(#[from] DocumentError),
    #[error("failed to read or write the store")]
    Store(#[from] postgres::Error),
    #[error(transparent)]
    Request(#[from] idempotency::Error),
}

impl Error {
    /// Returns true if Postgres is unavailable or overloaded, so that the same step may succeed later.
    pub(crate) fn is_store_unavailable(&self) -> bool {
        matches!(self.kind(), Kind::Unavailable | Kind::Limited)
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::TicketNotFound { .. }
            | Self::GenerationNotFound { .. }
            | Self::EventHasNoGeneration { .. }
            | Self::EventNotFound { .. } => Kind::NotFound,
            Self::CodeInvalid(_) => Kind::Invalid,
            Self::TicketCheckedIn { .. } | Self::NotGenerated { .. } | Self::IssuedToAnother { .. } => {
                Kind::State
            }
            Self::EventNotOwned { .. } => Kind::Forbidden,
            Self::Inconsistent { .. } | Self::Document(_) => Kind::Internal,
            Self::Store(error) => error.kind(),
            Self::Request(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        let own = |reason: ErrorReason| Reason::from_proto(reason.as_str_name());
        match self {
            Self::TicketNotFound { .. } => own(ErrorReason::TicketNotFound),
            Self::CodeInvalid(_) => own(ErrorReason::TicketCodeInvalid),
            Self::TicketCheckedIn { .. } => own(ErrorReason::TicketCheckedIn),
            Self::NotGenerated { .. } => own(ErrorReason::TicketsNotGenerated),
            Self::IssuedToAnother { .. } => own(ErrorReason::TicketsIssuedToAnother),
            Self::GenerationNotFound { .. } | Self::EventHasNoGeneration { .. } => {
                own(ErrorReason::GenerationNotFound)
            }
            Self::EventNotFound { .. } => CommonReason::EventNotFound.into(),
            Self::EventNotOwned { .. } => CommonReason::EventNotOwned.into(),
            Self::Inconsistent { .. } | Self::Document(_) => CommonReason::Internal.into(),
            Self::Store(error) => error.reason(),
            Self::Request(error) => error.reason(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::TicketNotFound { ticket_id } => vec![("ticket_id", ticket_id.to_string())],
            Self::TicketCheckedIn { claim_id } | Self::IssuedToAnother { claim_id } => {
                vec![("claim_id", claim_id.to_string())]
            }
            Self::GenerationNotFound { generation_id } => {
                vec![("generation_id", generation_id.to_string())]
            }
            Self::NotGenerated { event_id }
            | Self::EventHasNoGeneration { event_id }
            | Self::EventNotFound { event_id }
            | Self::EventNotOwned { event_id } => vec![("event_id", event_id.to_string())],
            Self::CodeInvalid(_)
            | Self::Inconsistent { .. }
            | Self::Document(_)
            | Self::Store(_)
            | Self::Request(_) => Vec::new(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::NotGenerated { .. }).then_some(NOT_GENERATED_RETRY_AFTER)
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            // No retry gives a ticket to a second order or makes a stored value readable: an operator must look at once.
            Error::IssuedToAnother { .. }
            | Error::Inconsistent { .. }
            | Error::Store(postgres::Error::Column { .. }) => Self::Poison(error.into()),
            error => Self::by_kind(error),
        }
    }
}
