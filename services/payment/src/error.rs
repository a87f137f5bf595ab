//! Errors of Payment's use cases, with the kind, reason and metadata that callers receive.

use onsale_kit::error::{InvalidFields, Kind, Reason, ServiceError, Violation, to_status};
use onsale_proto::{
    claim::v1::ErrorReason as ClaimReason, payment::v1::ErrorReason,
    ticketing::v1::ErrorReason as TicketingReason, r#type::v1::ErrorReason as CommonReason,
};
use onsale_storage::{idempotency, postgres, redis};
use onsale_types::{ClaimId, PaymentId};
use tonic::Status;

use crate::{
    clients::{NeighborError, ProviderError, VoidError, WebhookError},
    domain::{ClaimState, PaymentState, Provider},
};

/// Most variants are reasons of the contract, which `error_reason.proto` describes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no payment {payment_id}")]
    PaymentNotFound { payment_id: PaymentId },
    #[error("there is no payment of claim {claim_id}")]
    ClaimHasNoPayment { claim_id: ClaimId },
    #[error("there is no claim {claim_id}")]
    ClaimNotFound { claim_id: ClaimId },
    #[error("claim {claim_id} cannot be paid: it is {claim_state} or expires within seconds")]
    ClaimNotPayable { claim_id: ClaimId, claim_state: ClaimState },
    #[error("the claim already has the open payment {payment_id}")]
    OpenExists { payment_id: PaymentId },
    #[error("provider {provider} is not configured")]
    ProviderNotConfigured { provider: Provider },
    #[error("provider {provider} refused the payment")]
    ProviderRefused { provider: Provider },
    #[error("payment {payment_id} is {state}: no money can be refunded")]
    NotRefundable { payment_id: PaymentId, state: PaymentState },
    #[error("a ticket of claim {claim_id} was checked in")]
    TicketCheckedIn { claim_id: ClaimId },
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    #[error("failed to call the payment provider")]
    Provider(#[from] ProviderError),
    #[error("failed to call a neighbor")]
    Neighbor(#[from] NeighborError),
    #[error("failed to read or write payments")]
    Store(#[from] postgres::Error),
    #[error("failed to use the hint channel of a payment")]
    Hint(#[from] redis::Error),
    #[error("failed to look up or store the answer to a request")]
    Request(#[from] idempotency::Error),
}

impl Error {
    /// Converts a failure to void the tickets of `claim_id`.
    pub(crate) fn of_void(claim_id: ClaimId) -> impl Fn(VoidError) -> Self {
        move |error| match error {
            VoidError::CheckedIn => Self::TicketCheckedIn { claim_id },
            VoidError::Neighbor(error) => Self::Neighbor(error),
        }
    }
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::PaymentNotFound { .. } | Self::ClaimHasNoPayment { .. } | Self::ClaimNotFound { .. } => {
                Kind::NotFound
            }
            Self::ClaimNotPayable { .. }
            | Self::OpenExists { .. }
            | Self::ProviderNotConfigured { .. }
            | Self::ProviderRefused { .. }
            | Self::NotRefundable { .. }
            | Self::TicketCheckedIn { .. } => Kind::State,
            Self::Webhook(WebhookError::Signature | WebhookError::TooOld) => Kind::Forbidden,
            Self::Webhook(WebhookError::Malformed(_)) => Kind::Invalid,
            Self::Provider(_) | Self::Hint(_) => Kind::Unavailable,
            Self::Fields(error) => error.kind(),
            Self::Neighbor(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Request(error) => error.kind(),
        }
    }

    fn reason(&self) -> Reason {
        let own = |reason: ErrorReason| Reason::from_proto(reason.as_str_name());
        match self {
            Self::PaymentNotFound { .. } | Self::ClaimHasNoPayment { .. } => {
                own(ErrorReason::PaymentNotFound)
            }
            Self::ClaimNotFound { .. } => Reason::from_proto(ClaimReason::ClaimNotFound.as_str_name()),
            Self::ClaimNotPayable { .. } => own(ErrorReason::ClaimNotPayable),
            Self::OpenExists { .. } => own(ErrorReason::PaymentOpenExists),
            Self::ProviderNotConfigured { .. } => own(ErrorReason::ProviderNotConfigured),
            Self::ProviderRefused { .. } => own(ErrorReason::ProviderRefused),
            Self::NotRefundable { .. } => own(ErrorReason::PaymentNotRefundable),
            Self::TicketCheckedIn { .. } => {
                Reason::from_proto(TicketingReason::TicketCheckedIn.as_str_name())
            }
            Self::Webhook(WebhookError::Signature) => own(ErrorReason::WebhookSignatureInvalid),
            Self::Webhook(WebhookError::TooOld) => own(ErrorReason::WebhookTooOld),
            Self::Webhook(WebhookError::Malformed(_)) => own(ErrorReason::WebhookMalformed),
            Self::Provider(_) | Self::Hint(_) => CommonReason::DependencyUnavailable.into(),
            Self::Fields(error) => error.reason(),
            Self::Neighbor(error) => error.reason(),
            Self::Store(error) => error.reason(),
            Self::Request(error) => error.reason(),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::PaymentNotFound { payment_id } | Self::OpenExists { payment_id } => {
                vec![("payment_id", payment_id.to_string())]
            }
            Self::ClaimHasNoPayment { claim_id }
            | Self::ClaimNotFound { claim_id }
            | Self::TicketCheckedIn { claim_id } => vec![("claim_id", claim_id.to_string())],
            Self::ClaimNotPayable { claim_id, claim_state } => {
                vec![("claim_id", claim_id.to_string()), ("claim_state", claim_state.to_string())]
            }
            Self::ProviderNotConfigured { provider } | Self::ProviderRefused { provider } => {
                vec![("provider", provider.to_string())]
            }
            Self::NotRefundable { payment_id, state } => {
                vec![("payment_id", payment_id.to_string()), ("state", state.to_string())]
            }
            Self::Webhook(_)
            | Self::Fields(_)
            | Self::Provider(_)
            | Self::Neighbor(_)
            | Self::Store(_)
            | Self::Hint(_)
            | Self::Request(_) => Vec::new(),
        }
    }

    fn violations(&self) -> &[Violation] {
        match self {
            Self::Fields(error) => error.violations(),
            _ => &[],
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        to_status(&error)
    }
}
