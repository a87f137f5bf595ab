//! What can go wrong, and how a caller hears of it: kind, reason, facts.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    auth::SignError,
    batcher::SubmitError,
    error::{Kind, QuotaViolation, Reason, ServiceError, Violation, to_status},
};
use onsale_proto::{queue::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, lease, messaging::HandlerError, postgres, redis};
use tonic::Status;

use crate::domain::refusal::Refusal;

/// When to try again to join a queue that is paused or full.
const JOIN_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// When to open a stream again.
const WATCH_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why a use case failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The rules say no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A field is wrong in a way only the use case can see.
    #[error("a field of the request is invalid: {}", .0.description)]
    Field(Violation),
    /// The request id was used before with another body.
    #[error("the request id was used before with another body")]
    RequestIdReused,
    /// Postgres failed.
    #[error("failed to use postgres")]
    Postgres(#[from] postgres::Error),
    /// Redis failed.
    #[error("failed to use redis")]
    Redis(#[from] redis::Error),
    /// A repeated request could not be looked up.
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
    /// Another leads by now.
    #[error("failed to act as the leader")]
    Lease(#[from] lease::Error),
    /// A token could not be signed.
    #[error("failed to sign a token")]
    HeartbeatKind(#[from] SignError),
    /// Inventory could not be asked.
    #[error("failed to ask inventory")]
    Inventory(#[source] Box<Status>),
    /// The batch that carried the item failed.
    #[error(transparent)]
    Batch(Box<SubmitError<Error>>),
    /// What failed for several at once.
    #[error(transparent)]
    Shared(Arc<Error>),
    /// This pod's copy of the line does not catch up.
    #[error("this instance's view of the queue is behind")]
    Behind,
    /// A client did not read its stream for too long.
    #[error("the client did not read its stream for too long")]
    TooSlow,
    /// A stored value has a form that this version does not know.
    #[error("the stored {what} makes no sense")]
    Stored {
        /// What it is.
        what: &'static str,
    },
}

impl From<SubmitError<Self>> for Error {
    fn from(error: SubmitError<Self>) -> Self {
        match error {
            SubmitError::Item(error) => error,
            error => Self::Batch(Box::new(error)),
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}

/// What an event's handler does with a failure: only what may heal is tried again.
impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error {
            Error::Postgres(error) => error.into(),
            error if error.kind() == Kind::Unavailable => Self::Unavailable(error.into()),
            error => Self::Retry(error.into()),
        }
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused(refusal) => kind(refusal),
            Self::Field(_) | Self::RequestIdReused => Kind::Invalid,
            Self::Postgres(error) => error.kind(),
            Self::Redis(error) => error.kind(),
            Self::Idempotency(error) => error.kind(),
            Self::Lease(error) => error.kind(),
            Self::Inventory(_) | Self::Behind | Self::TooSlow => Kind::Unavailable,
            Self::Batch(error) => error.kind(),
            Self::Shared(error) => error.kind(),
            Self::HeartbeatKind(_) | Self::Stored { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Refused(refusal) => reason(refusal),
            Self::Field(_) => CommonReason::FieldsInvalid.into(),
            Self::RequestIdReused => CommonReason::RequestIdReused.into(),
            Self::Postgres(error) => error.reason(),
            Self::Redis(error) => error.reason(),
            Self::Idempotency(error) => error.reason(),
            Self::Lease(error) => error.reason(),
            Self::Inventory(_) | Self::Behind => CommonReason::DependencyUnavailable.into(),
            Self::TooSlow => Reason::from_proto(ErrorReason::WatcherTooSlow.as_str_name()),
            Self::Batch(error) => error.reason(),
            Self::Shared(error) => error.reason(),
            Self::HeartbeatKind(_) | Self::Stored { .. } => CommonReason::Internal.into(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Refused(refusal) => metadata(refusal),
            Self::Batch(error) => error.metadata(),
            Self::Shared(error) => error.metadata(),
            _ => Vec::new(),
        }
    }

    fn violations(&self) -> &[Violation] {
        match self {
            Self::Field(violation) => std::slice::from_ref(violation),
            Self::Batch(error) => error.violations(),
            Self::Shared(error) => error.violations(),
            _ => &[],
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => retry_after(refusal),
            Self::Behind | Self::TooSlow => Some(WATCH_AGAIN_AFTER),
            Self::Redis(error) => error.retry_after(),
            Self::Batch(error) => error.retry_after(),
            Self::Shared(error) => error.retry_after(),
            _ => None,
        }
    }

    fn quota(&self) -> Option<QuotaViolation> {
        match self {
            Self::Refused(Refusal::QueueFull { waiting_max }) => Some(QuotaViolation {
                subject: "queue".to_owned(),
                description: format!("at most {waiting_max} customers wait at a time"),
            }),
            Self::Batch(error) => error.quota(),
            Self::Shared(error) => error.quota(),
            _ => None,
        }
    }
}

fn kind(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::EventNotFound { .. } | Refusal::EntryNotFound { .. } => Kind::NotFound,
        Refusal::EventNotOwned { .. } | Refusal::CustomerBlocked | Refusal::QueueTokenInvalid => {
            Kind::Forbidden
        }
        Refusal::QueueFull { .. } => Kind::Limited,
        Refusal::QueueNotOpen { .. }
        | Refusal::QueuePaused
        | Refusal::QueueClosed { .. }
        | Refusal::SoldOut { .. }
        | Refusal::EntryNotWaiting { .. }
        | Refusal::NeighborsNotTracked
        | Refusal::TurnExpired { .. }
        | Refusal::TurnStale
        | Refusal::TurnEnded { .. }
        | Refusal::TransitionInvalid { .. }
        | Refusal::QueueTokenRequired
        | Refusal::ModeFixed { .. } => Kind::State,
    }
}

fn reason(refusal: &Refusal) -> Reason {
    let reason = match refusal {
        Refusal::EventNotFound { .. } => return CommonReason::EventNotFound.into(),
        Refusal::EventNotOwned { .. } => return CommonReason::EventNotOwned.into(),
        Refusal::QueueNotOpen { .. } => ErrorReason::QueueNotOpen,
        Refusal::QueuePaused => ErrorReason::QueuePaused,
        Refusal::QueueClosed { .. } => ErrorReason::QueueClosed,
        Refusal::SoldOut { .. } => ErrorReason::EventSoldOut,
        Refusal::QueueFull { .. } => ErrorReason::QueueFull,
        Refusal::CustomerBlocked => ErrorReason::CustomerBlocked,
        Refusal::EntryNotFound { .. } => ErrorReason::EntryNotFound,
        Refusal::EntryNotWaiting { .. } => ErrorReason::EntryNotWaiting,
        Refusal::NeighborsNotTracked => ErrorReason::NeighborsNotTracked,
        Refusal::QueueTokenInvalid => ErrorReason::QueueTokenInvalid,
        Refusal::QueueTokenRequired => ErrorReason::QueueTokenRequired,
        Refusal::TurnExpired { .. } => ErrorReason::TurnExpired,
        Refusal::TurnStale => ErrorReason::TurnStale,
        Refusal::TurnEnded { .. } => ErrorReason::TurnEnded,
        Refusal::TransitionInvalid { .. } => ErrorReason::QueueTransitionInvalid,
        Refusal::ModeFixed { .. } => ErrorReason::QueueModeFixed,
    };
    Reason::from_proto(reason.as_str_name())
}

fn metadata(refusal: &Refusal) -> Vec<(&'static str, String)> {
    match refusal {
        Refusal::EventNotFound { event_id }
        | Refusal::EventNotOwned { event_id }
        | Refusal::EntryNotFound { event_id } => vec![("event_id", event_id.to_string())],
        Refusal::QueueNotOpen { open_time: Some(time), .. } => vec![("open_time", time.to_string())],
        Refusal::QueueClosed { reason } => vec![("close_reason", reason.name().to_owned())],
        Refusal::SoldOut { remaining } if !remaining.is_empty() => {
            let ids: Vec<String> = remaining.iter().map(ToString::to_string).collect();
            vec![("remaining_sector_ids", ids.join(","))]
        }
        Refusal::QueueFull { waiting_max } => vec![("waiting_max", waiting_max.to_string())],
        Refusal::TurnExpired { expire_time } => vec![("expire_time", expire_time.to_string())],
        Refusal::EntryNotWaiting { state } | Refusal::TurnEnded { state } => {
            vec![("state", state.name().to_owned())]
        }
        Refusal::TransitionInvalid { state } => vec![("state", state.name().to_owned())],
        Refusal::ModeFixed { mode } => vec![("mode", mode.name().to_owned())],
        Refusal::QueueNotOpen { open_time: None, .. }
        | Refusal::QueuePaused
        | Refusal::SoldOut { .. }
        | Refusal::CustomerBlocked
        | Refusal::NeighborsNotTracked
        | Refusal::QueueTokenInvalid
        | Refusal::QueueTokenRequired
        | Refusal::TurnStale => Vec::new(),
    }
}

fn retry_after(refusal: &Refusal) -> Option<Duration> {
    match refusal {
        Refusal::QueueNotOpen { open_time: Some(open_time), now } => Some(open_time.saturating_since(*now)),
        Refusal::QueuePaused | Refusal::QueueFull { .. } => Some(JOIN_AGAIN_AFTER),
        _ => None,
    }
}
