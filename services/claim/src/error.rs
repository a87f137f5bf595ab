//! Why Claim says no, or cannot answer. One type for all use cases: most of these can come out of several.

use std::time::Duration;

use onsale_kit::{
    batcher::SubmitError,
    error::{Kind, QuotaViolation, Reason, ServiceError, to_status},
};
use onsale_proto::{
    claim::v1::ErrorReason, queue::v1::ErrorReason as QueueReason, r#type::v1::ErrorReason as CommonReason,
};
use onsale_storage::{idempotency, postgres};
use onsale_types::{ClaimId, CustomerId, PaymentId, Timestamp};
use tonic::Status;

use crate::{
    clients,
    domain::{LimitExceeded, TurnError},
};

/// Why a claim could not be made, changed or told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such claim, or it is another's.
    #[error("there is no claim {claim}")]
    ClaimNotFound {
        /// The id asked for.
        claim: ClaimId,
    },
    /// The customer has an open claim for the event.
    #[error("the customer has an open claim for this event")]
    ClaimOpenExists {
        /// That one.
        claim: ClaimId,
    },
    /// The customer would have more units than the event allows.
    #[error("at most {} units of this event per customer, {} left", exceeded.units_max, exceeded.units_left)]
    LimitExceeded {
        /// Who.
        customer: CustomerId,
        /// The limit, and what is left of it.
        exceeded: LimitExceeded,
    },
    /// Tickets could not be sent.
    #[error("the customer has no verified email")]
    EmailNotVerified,
    /// The claim is paid and stays.
    #[error("claim {claim} is paid")]
    ClaimConfirmed {
        /// Which.
        claim: ClaimId,
    },
    /// What was paid is not what was to be paid.
    #[error("what was paid is not the total of claim {claim}")]
    AmountMismatch {
        /// Which claim.
        claim: ClaimId,
    },
    /// Another payment was first.
    #[error("claim {claim} was paid by another payment")]
    PaidByAnother {
        /// Which claim.
        claim: ClaimId,
        /// The first payment.
        payment: PaymentId,
    },
    /// The turn token gives no right.
    #[error("the turn token is not valid for this event and customer")]
    TurnTokenInvalid,
    /// The turn ran out.
    #[error("the turn ended at {expire_time}")]
    TurnExpired {
        /// When.
        expire_time: Timestamp,
    },
    /// The customer let several claims go by.
    #[error("after several claims given up the next may be made at {retry_time}")]
    Cooldown {
        /// When the next may be made.
        retry_time: Timestamp,
        /// How long that is from now.
        wait: Duration,
    },
    /// Another call was at the same thing; begun again, it finds what that one left.
    #[error("lost against a concurrent call: {what}")]
    Contended {
        /// At what.
        what: &'static str,
    },
    /// A neighbor refused, or could not answer.
    #[error(transparent)]
    Neighbor(#[from] clients::Error),
    /// The request cannot be told apart from another.
    #[error(transparent)]
    Idempotency(#[from] idempotency::Error),
    /// Postgres failed.
    #[error("failed to read or write claims")]
    Postgres(#[from] postgres::Error),
    /// The batch that carried the request failed, or had no place for it.
    #[error(transparent)]
    Batch(Box<SubmitError<Self>>),
    /// A stored value makes no sense.
    #[error("the stored {what} makes no sense")]
    Stored {
        /// Which value.
        what: &'static str,
    },
}

impl Error {
    /// Whether the step it came from certainly changed nothing and never will, so that what was reserved for it can go.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
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

    /// Whether one row of several may be to blame, and nothing was written.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
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
            Self::ClaimNotFound { claim }
            | Self::ClaimOpenExists { claim }
            | Self::ClaimConfirmed { claim }
            | Self::AmountMismatch { claim } => vec![("claim_id", claim.to_string())],
            Self::PaidByAnother { claim, payment } => {
                vec![("claim_id", claim.to_string()), ("payment_id", payment.to_string())]
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
        let Self::LimitExceeded { customer, exceeded } = self else { return None };
        Some(QuotaViolation {
            subject: format!("customer:{customer}"),
            description: format!("at most {} units of this event", exceeded.units_max),
        })
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        match error {
            // With all its details: the contract names the neighbor's reasons as Claim's own.
            Error::Neighbor(clients::Error::Refused { status, .. }) => *status,
            error => to_status(&error),
        }
    }
}
