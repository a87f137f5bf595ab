//! Errors of the service. One type serves all use cases, because most errors can come from several of them.

use std::time::Duration;

use onsale_kit::{
    batcher::SubmitError,
    error::{Kind, QuotaViolation, Reason, ServiceError, to_status},
};
use onsale_proto::{
    claim::v1::ErrorReason, queue::v1::ErrorReason as QueueReason, r#type::v1::ErrorReason as CommonReason,
};
use onsale_storage::{idempotency, messaging::HandlerError, postgres};
use onsale_types::{ClaimId, CustomerId, PaymentId, Timestamp};
use tonic::Status;

use crate::{
    clients,
    domain::{LimitExceeded, Refusal, TurnError},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The claim does not exist or belongs to another customer.
    #[error("claim {claim_id} does not exist")]
    ClaimNotFound { claim_id: ClaimId },
    #[error("the customer has an open claim for this event")]
    ClaimOpenExists { claim_id: ClaimId },
    #[error("at most {} units of this event per customer, {} left", exceeded.units_max, exceeded.units_left)]
    LimitExceeded { customer_id: CustomerId, exceeded: LimitExceeded },
    /// Tickets are sent to the buyer's email address, so it must be verified.
    #[error("the customer has no verified email")]
    EmailNotVerified,
    #[error("claim {claim_id} is paid and cannot be released")]
    ClaimConfirmed { claim_id: ClaimId },
    #[error("paid amount differs from the total of claim {claim_id}")]
    AmountMismatch { claim_id: ClaimId },
    /// The claim already has the payment `payment_id`.
    #[error("claim {claim_id} was paid by another payment")]
    PaidByAnother { claim_id: ClaimId, payment_id: PaymentId },
    #[error("the turn token is not valid for this event and customer")]
    TurnTokenInvalid,
    #[error("the turn ended at {expire_time}")]
    TurnExpired { expire_time: Timestamp },
    /// The customer may retry after `wait`, at `retry_time`.
    #[error("too many abandoned claims, try again at {retry_time}")]
    Cooldown { retry_time: Timestamp, wait: Duration },
    /// A concurrent call changed the same thing. A retry starts from the state that it left.
    #[error("lost a race for {what}")]
    Contended { what: &'static str },
    #[error(transparent)]
    Neighbor(#[from] clients::Error),
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
    #[error("failed to read or write claims")]
    Postgres(#[from] postgres::Error),
    /// The whole batch failed, or the batcher did not accept the request.
    #[error(transparent)]
    Batch(Box<SubmitError<Self>>),
    /// A stored value contradicts the rest of its row, or a row is missing.
    #[error("the stored {what} is invalid")]
    Stored { what: &'static str },
}

impl Error {
    /// Returns the error for a refusal to create a claim of the customer.
    pub(crate) fn refused(customer_id: CustomerId, refusal: Refusal) -> Self {
        match refusal {
            Refusal::RequestIdReused(request_id) => {
                idempotency::Error::RequestIdReused { id: request_id.as_uuid() }.into()
            }
            Refusal::OpenClaim(claim_id) => Self::ClaimOpenExists { claim_id },
            Refusal::TurnExpired { expire_time } => Self::TurnExpired { expire_time },
            Refusal::InvalidPrice => Self::Stored { what: "price of a hold" },
            Refusal::Cooldown { retry_time, wait } => Self::Cooldown { retry_time, wait },
            Refusal::LimitExceeded(exceeded) => Self::LimitExceeded { customer_id, exceeded },
        }
    }

    /// Returns true if the failed step wrote nothing and can never take effect, so its hold can be released.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Idempotency(error) => matches!(error, idempotency::Error::RequestIdReused { .. }),
            Self::Neighbor(_) | Self::Postgres(_) | Self::Batch(_) => false,
            Self::ClaimNotFound { .. }
            | Self::ClaimOpenExists { .. }
            | Self::LimitExceeded { .. }
            | Self::EmailNotVerified
            | Self::ClaimConfirmed { .. }
            | Self::AmountMismatch { .. }
            | Self::PaidByAnother { .. }
            | Self::TurnTokenInvalid
            | Self::TurnExpired { .. }
            | Self::Cooldown { .. }
            | Self::Contended { .. }
            | Self::Stored { .. } => true,
        }
    }

    /// Returns true if nothing was written and a single row of the batch may have caused the failure.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(self, Self::Postgres(postgres::Error::Query { .. } | postgres::Error::Conflict { .. }))
    }
}

impl From<SubmitError<Self>> for Error {
    fn from(error: SubmitError<Self>) -> Self {
        match error {
            SubmitError::Item(error) => error,
            error => Self::Batch(Box::new(error)),
        }
    }
}

impl From<TurnError> for Error {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Foreign => Self::TurnTokenInvalid,
            TurnError::Expired { expire_time } => Self::TurnExpired { expire_time },
        }
    }
}

/// An event whose handling failed is retried: as long as the cause can pass, without a limit.
impl From<Error> for HandlerError {
    fn from(error: Error) -> Self {
        match error.kind() {
            Kind::Unavailable | Kind::Timeout | Kind::Limited | Kind::Contended => {
                Self::Unavailable(error.into())
            }
            Kind::Invalid
            | Kind::Unauthenticated
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::AlreadyExists
            | Kind::State
            | Kind::Unimplemented
            | Kind::Internal => Self::Retry(error.into()),
        }
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::ClaimNotFound { .. } => Kind::NotFound,
            Self::ClaimOpenExists { .. }
            | Self::LimitExceeded { .. }
            | Self::EmailNotVerified
            | Self::ClaimConfirmed { .. }
            | Self::AmountMismatch { .. }
            | Self::PaidByAnother { .. }
            | Self::TurnExpired { .. } => Kind::State,
            Self::TurnTokenInvalid => Kind::Forbidden,
            Self::Cooldown { .. } => Kind::Limited,
            Self::Batch(error) => error.kind(),
            Self::Contended { .. } => Kind::Contended,
            Self::Neighbor(error) => error.kind(),
            Self::Idempotency(error) => error.kind(),
            Self::Postgres(error) => error.kind(),
            Self::Stored { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        let own = match self {
            Self::ClaimNotFound { .. } => ErrorReason::ClaimNotFound,
            Self::ClaimOpenExists { .. } => ErrorReason::ClaimOpenExists,
            Self::LimitExceeded { .. } => ErrorReason::CustomerLimitExceeded,
            Self::EmailNotVerified => ErrorReason::EmailNotVerified,
            Self::ClaimConfirmed { .. } => ErrorReason::ClaimConfirmed,
            Self::AmountMismatch { .. } => ErrorReason::AmountMismatch,
            Self::PaidByAnother { .. } => ErrorReason::ClaimPaidByAnother,
            Self::TurnTokenInvalid => return Reason::from_proto(QueueReason::TurnTokenInvalid.as_str_name()),
            Self::TurnExpired { .. } => return Reason::from_proto(QueueReason::TurnExpired.as_str_name()),
            Self::Cooldown { .. } => ErrorReason::ClaimCooldown,
            Self::Batch(error) => return error.reason(),
            Self::Contended { .. } => return CommonReason::Contended.into(),
            Self::Neighbor(error) => return error.reason(),
            Self::Idempotency(error) => return error.reason(),
            Self::Postgres(error) => return error.reason(),
            Self::Stored { .. } => return CommonReason::Internal.into(),
        };
        Reason::from_proto(own.as_str_name())
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::ClaimNotFound { claim_id }
            | Self::ClaimOpenExists { claim_id }
            | Self::ClaimConfirmed { claim_id }
            | Self::AmountMismatch { claim_id } => vec![("claim_id", claim_id.to_string())],
            Self::PaidByAnother { claim_id, payment_id } => {
                vec![("claim_id", claim_id.to_string()), ("payment_id", payment_id.to_string())]
            }
            Self::LimitExceeded { exceeded, .. } => vec![
                ("units_per_customer_max", exceeded.units_max.to_string()),
                ("units_left", exceeded.units_left.to_string()),
            ],
            Self::TurnExpired { expire_time } => vec![("expire_time", expire_time.to_string())],
            Self::Cooldown { retry_time, .. } => vec![("retry_time", retry_time.to_string())],
            Self::Batch(error) => error.metadata(),
            Self::EmailNotVerified
            | Self::TurnTokenInvalid
            | Self::Contended { .. }
            | Self::Neighbor(_)
            | Self::Idempotency(_)
            | Self::Postgres(_)
            | Self::Stored { .. } => Vec::new(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Cooldown { wait, .. } => Some(*wait),
            Self::Batch(error) => error.retry_after(),
            Self::Postgres(error) => error.retry_after(),
            _ => None,
        }
    }

    fn quota(&self) -> Option<QuotaViolation> {
        let Self::LimitExceeded { customer_id, exceeded } = self else { return None };
        Some(QuotaViolation {
            subject: format!("customer:{customer_id}"),
            description: format!("at most {} units of this event", exceeded.units_max),
        })
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            // With all its details: the contract documents the neighbor's reasons as Claim's own.
            Error::Neighbor(clients::Error::Refused { status, .. }) => *status,
            error => to_status(&error),
        }
    }
}
