//! What can go wrong for a caller, and in the store.

use onsale_kit::error::{Kind, Reason, ServiceError, to_status};
use onsale_proto::{notification::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, messaging::HandlerError};
use onsale_types::EventId;
use uuid::Uuid;

use crate::{
    domain::{delivery::State, order::TooManyWaiting},
    store,
};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such event, or nothing says yet whose it is.
    #[error("there is no event {event_id}")]
    EventNotFound {
        /// Which.
        event_id: EventId,
    },
    /// It is another organizer's.
    #[error("the event {event_id} belongs to another organizer")]
    EventNotOwned {
        /// Which.
        event_id: EventId,
    },
    /// There is no such delivery, or it is about another organizer's event.
    #[error("there is no delivery {delivery_id}")]
    DeliveryNotFound {
        /// Which.
        delivery_id: Uuid,
    },
    /// It is not in the dead letters.
    #[error("the delivery {delivery_id} is {}, not DEAD", state.name())]
    DeliveryNotDead {
        /// Which.
        delivery_id: Uuid,
        /// Where it is instead.
        state: State,
    },
    /// The store failed.
    #[error("failed to use the store")]
    Store(#[from] store::Error),
    /// The memory of answered requests failed, or has another body.
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
}

impl From<onsale_storage::postgres::Error> for Error {
    fn from(error: onsale_storage::postgres::Error) -> Self {
        Self::Store(error.into())
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::EventNotFound { .. } | Self::DeliveryNotFound { .. } => Kind::NotFound,
            Self::EventNotOwned { .. } => Kind::Forbidden,
            Self::DeliveryNotDead { .. } => Kind::State,
            Self::Store(error) => error.kind(),
            Self::Idempotency(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::EventNotFound { .. } => CommonReason::EventNotFound.into(),
            Self::EventNotOwned { .. } => CommonReason::EventNotOwned.into(),
            Self::DeliveryNotFound { .. } => own(ErrorReason::DeliveryNotFound),
            Self::DeliveryNotDead { .. } => own(ErrorReason::DeliveryNotDead),
            Self::Store(error) => error.reason(),
            Self::Idempotency(error) => error.reason(),
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
            Self::Store(_) | Self::Idempotency(_) => Vec::new(),
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

/// Why a fact of another service could not be taken in.
#[derive(Debug, thiserror::Error)]
pub enum HearError {
    /// The store failed.
    #[error("failed to use the store")]
    Store(#[from] store::Error),
    /// No try would help.
    #[error(transparent)]
    TooManyWaiting(#[from] TooManyWaiting),
}

impl From<HearError> for HandlerError {
    fn from(error: HearError) -> Self {
        match error {
            HearError::Store(store::Error::Postgres(error)) => error.into(),
            HearError::Store(error) => Self::Retry(error.into()),
            HearError::TooManyWaiting(error) => Self::Poison(error.into()),
        }
    }
}
