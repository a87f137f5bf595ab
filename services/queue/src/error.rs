//! Errors of Queue and the status that a caller gets: kind, reason and metadata.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    auth::SignError,
    batcher::SubmitError,
    error::{Kind, QuotaViolation, Reason, ServiceError, Violation, to_status},
};
use onsale_proto::{queue::v1::ErrorReason, r#type::v1::ErrorReason as CommonReason};
use onsale_storage::{idempotency, lease, messaging::HandlerError, postgres, redis};
use onsale_types::Named as _;
use tonic::Status;

use crate::domain::refusal::Refusal;

/// Time after which a client should try again to join a paused or full queue.
const JOIN_RETRY_AFTER: Duration = Duration::from_secs(15);

/// Time after which a client should open its stream again.
const WATCH_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Failure of a use case.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A field is wrong in a way that depends on the stored state.
    #[error("a field of the request is invalid: {}", .0.description)]
    Field(Violation),
    #[error("failed to use postgres")]
    Postgres(#[from] postgres::Error),
    #[error("failed to use redis")]
    Redis(#[from] redis::Error),
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
    /// The lease is lost: another pod leads the event.
    #[error("failed to act as the leader")]
    Lease(#[from] lease::Error),
    #[error("failed to sign a token")]
    Sign(#[from] SignError),
    #[error("failed to read free units from inventory")]
    Inventory(#[source] Box<Status>),
    #[error(transparent)]
    Batch(Box<SubmitError<Error>>),
    /// One failure of several requests of a batch.
    #[error(transparent)]
    Shared(Arc<Error>),
    /// The replica of the line did not reach the entry's revision in time.
    #[error("the line replica of this instance lags, try again")]
    ReplicaLagging,
    #[error("the client did not read its stream for too long")]
    WatcherTooSlow,
    /// A stored value is in a form that this version does not know.
    #[error("failed to read the stored {what}")]
    Unreadable { what: &'static str },
    /// A value exceeds the range of its column.
    #[error("failed to store {what}: the value is out of range")]
    Unstorable { what: &'static str },
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

impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        Self::by_kind(error)
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused(refusal) => kind(refusal),
            Self::Field(_) => Kind::Invalid,
            Self::Postgres(error) => error.kind(),
            Self::Redis(error) => error.kind(),
            Self::Idempotency(error) => error.kind(),
            Self::Lease(error) => error.kind(),
            Self::Inventory(_) | Self::ReplicaLagging | Self::WatcherTooSlow => Kind::Unavailable,
            Self::Batch(error) => error.kind(),
            Self::Shared(error) => error.kind(),
            Self::Sign(_) | Self::Unreadable { .. } | Self::Unstorable { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Refused(refusal) => reason(refusal),
            Self::Field(_) => CommonReason::FieldsInvalid.into(),
            Self::Postgres(error) => error.reason(),
            Self::Redis(error) => error.reason(),
            Self::Idempotency(error) => error.reason(),
            Self::Lease(error) => error.reason(),
            Self::Inventory(_) | Self::ReplicaLagging => CommonReason::DependencyUnavailable.into(),
            Self::WatcherTooSlow => Reason::from_proto(ErrorReason::WatcherTooSlow.as_str_name()),
            Self::Batch(error) => error.reason(),
            Self::Shared(error) => error.reason(),
            Self::Sign(_) | Self::Unreadable { .. } | Self::Unstorable { .. } => {
                CommonReason::Internal.into()
            }
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
            Self::ReplicaLagging | Self::WatcherTooSlow => Some(WATCH_RETRY_AFTER),
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
        Refusal::RequestIdReused => Kind::Invalid,
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
        Refusal::RequestIdReused => return CommonReason::RequestIdReused.into(),
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
        | Refusal::RequestIdReused
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
        Refusal::QueuePaused | Refusal::QueueFull { .. } => Some(JOIN_RETRY_AFTER),
        _ => None,
    }
}
