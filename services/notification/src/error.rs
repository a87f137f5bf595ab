//! Errors of Notification's use cases, with the kind, reason and metadata that callers receive.

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::{notification::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, messaging::HandlerError, postgres};
use onsale_types::{EventId, Named as _};
use uuid::Uuid;

use crate::domain::{delivery::DeliveryState, order::TooManyWaiting};

/// Error of a call or a worker.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Also returned for an event of another organizer that may still be a draft.
    #[error("there is no event {event_id}")]
    EventNotFound { event_id: EventId },
    #[error("the event {event_id} belongs to another organizer")]
    EventNotOwned { event_id: EventId },
    /// Also returned for a delivery about another organizer's event.
    #[error("there is no delivery {delivery_id}")]
    DeliveryNotFound { delivery_id: Uuid },
    #[error("the delivery {delivery_id} is {}, not DEAD", state.name())]
    DeliveryNotDead { delivery_id: Uuid, state: DeliveryState },
    #[error("failed to read or write jobs or deliveries")]
    Store(#[from] postgres::Error),
    #[error("failed to look up or store the answer to a request")]
    Request(#[from] idempotency::Error),
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::EventNotFound { .. } | Self::DeliveryNotFound { .. } => Kind::NotFound,
            Self::EventNotOwned { .. } => Kind::Forbidden,
            Self::DeliveryNotDead { .. } => Kind::State,
            Self::Store(error) => error.kind(),
            Self::Request(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::EventNotFound { .. } => CommonReason::EventNotFound.into(),
            Self::EventNotOwned { .. } => CommonReason::EventNotOwned.into(),
            Self::DeliveryNotFound { .. } => own(ErrorReason::DeliveryNotFound),
            Self::DeliveryNotDead { .. } => own(ErrorReason::DeliveryNotDead),
            Self::Store(error) => error.reason(),
            Self::Request(error) => error.reason(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::EventNotFound { event_id } | Self::EventNotOwned { event_id } => {
                vec![("event_id", event_id.to_string())]
            }
            Self::DeliveryNotFound { delivery_id } => vec![("delivery_id", delivery_id.to_string())],
            Self::DeliveryNotDead { delivery_id, state } => {
                vec![("delivery_id", delivery_id.to_string()), ("state", state.name().to_owned())]
            }
            Self::Store(_) | Self::Request(_) => Vec::new(),
        }
    }
}

fn own(reason: ErrorReason) -> Reason {
    Reason::from_proto(reason.as_str_name())
}

impl From<Error> for tonic::Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}

/// Error while an event of another service is handled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConsumeError {
    #[error("failed to read or write jobs or orders")]
    Store(#[from] postgres::Error),
    #[error(transparent)]
    TooManyWaiting(#[from] TooManyWaiting),
}

impl From<ConsumeError> for HandlerError {
    fn from(error: ConsumeError) -> Self {
        match error {
            ConsumeError::Store(error) => Self::by_kind(error),
            // Another attempt finds as many waiting tickets: the event goes to the dead letters.
            ConsumeError::TooManyWaiting(error) => Self::Poison(error.into()),
        }
    }
}
