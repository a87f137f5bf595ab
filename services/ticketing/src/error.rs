//! Why Ticketing could not do what it was asked for.

use std::time::Duration;

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::{ticketing::v1::ErrorReason, r#type::v1::ErrorReason as SharedReason};
use onsale_storage::{idempotency, messaging::HandlerError, postgres};
use onsale_types::{ClaimId, EventId, GenerationId, TicketId};

use crate::domain::{
    code::CodeInvalid,
    document::DocumentError,
    event::{Denied, EventOwner},
};

/// When to ask again for tickets that are being made.
const GENERATED_AFTER: Duration = Duration::from_secs(1);

/// Everything that can go wrong in a use case.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such ticket, or it is another's.
    #[error("there is no ticket {0}")]
    TicketNotFound(TicketId),
    /// The code is not ours.
    #[error(transparent)]
    CodeInvalid(#[from] CodeInvalid),
    /// Somebody went in with a ticket of the claim.
    #[error("a ticket of claim {0} was checked in")]
    TicketCheckedIn(ClaimId),
    /// The units' tickets do not exist yet.
    #[error("the tickets of event {0} are still being made")]
    NotGenerated(EventId),
    /// A unit's ticket is another claim's, or the claim's tickets are void.
    #[error("a ticket of claim {0} was issued to another, or is void")]
    IssuedToAnother(ClaimId),
    /// There is no such job.
    #[error("there is no generation {0}")]
    GenerationNotFound(GenerationId),
    /// The event has no job.
    #[error("event {0} has no generation")]
    NoGeneration(EventId),
    /// There is no such event, or it is another's draft.
    #[error("there is no event {0}")]
    EventNotFound(EventId),
    /// The event is another's.
    #[error("event {0} belongs to another organizer")]
    EventNotOwned(EventId),
    /// What is stored contradicts itself.
    #[error("stored data is wrong: {what}")]
    Corrupt {
        /// What is wrong.
        what: &'static str,
    },
    /// A file could not be made.
    #[error("failed to make a document")]
    Document(#[from] DocumentError),
    /// Postgres failed.
    #[error("failed to use the store")]
    Store(#[from] postgres::Error),
    /// The request was asked before, or cannot be remembered.
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
}

impl Error {
    /// What an organizer hears who may not manage `event`.
    #[must_use]
    pub fn denied(event: &EventOwner, denied: Denied) -> Self {
        match denied {
            Denied::Hidden => Self::EventNotFound(event.event_id),
            Denied::NotOwned => Self::EventNotOwned(event.event_id),
        }
    }

    /// Whether the store is away: then it is nobody's fault, and trying again later is all there is to do.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self.kind(), Kind::Unavailable | Kind::Limited)
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::TicketNotFound(_)
            | Self::GenerationNotFound(_)
            | Self::NoGeneration(_)
            | Self::EventNotFound(_) => Kind::NotFound,
            Self::CodeInvalid(_) => Kind::Invalid,
            Self::TicketCheckedIn(_) | Self::NotGenerated(_) | Self::IssuedToAnother(_) => Kind::State,
            Self::EventNotOwned(_) => Kind::Forbidden,
            Self::Corrupt { .. } | Self::Document(_) => Kind::Internal,
            Self::Store(error) => error.kind(),
            Self::Idempotency(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        let own = |reason: ErrorReason| Reason::from_proto(reason.as_str_name());
        match self {
            Self::TicketNotFound(_) => own(ErrorReason::TicketNotFound),
            Self::CodeInvalid(_) => own(ErrorReason::TicketCodeInvalid),
            Self::TicketCheckedIn(_) => own(ErrorReason::TicketCheckedIn),
            Self::NotGenerated(_) => own(ErrorReason::TicketsNotGenerated),
            Self::IssuedToAnother(_) => own(ErrorReason::TicketsIssuedToAnother),
            Self::GenerationNotFound(_) | Self::NoGeneration(_) => own(ErrorReason::GenerationNotFound),
            Self::EventNotFound(_) => SharedReason::EventNotFound.into(),
            Self::EventNotOwned(_) => SharedReason::EventNotOwned.into(),
            Self::Corrupt { .. } | Self::Document(_) => SharedReason::Internal.into(),
            Self::Store(error) => error.reason(),
            Self::Idempotency(error) => error.reason(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::TicketNotFound(id) => vec![("ticket_id", id.to_string())],
            Self::TicketCheckedIn(id) | Self::IssuedToAnother(id) => vec![("claim_id", id.to_string())],
            Self::GenerationNotFound(id) => vec![("generation_id", id.to_string())],
            Self::NotGenerated(id)
            | Self::NoGeneration(id)
            | Self::EventNotFound(id)
            | Self::EventNotOwned(id) => vec![("event_id", id.to_string())],
            Self::CodeInvalid(_)
            | Self::Corrupt { .. }
            | Self::Document(_)
            | Self::Store(_)
            | Self::Idempotency(_) => Vec::new(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::NotGenerated(_)).then_some(GENERATED_AFTER)
    }
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}

/// What a failed use case means for the event that asked for it.
impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(error) => error.into(),
            // No number of tries gives a ticket to a second order: a human must look, now.
            error @ (Error::IssuedToAnother(_) | Error::Corrupt { .. }) => Self::Poison(error.into()),
            error => Self::Retry(error.into()),
        }
    }
}
