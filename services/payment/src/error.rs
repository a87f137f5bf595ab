//! What can go wrong for a caller of Payment, and what each failure says to them.

use onsale_kit::error::{InvalidFields, Kind, Reason, ServiceError, Violation, to_status};
use onsale_proto::{
    claim::v1::ErrorReason as ClaimReason, payment::v1::ErrorReason,
    ticketing::v1::ErrorReason as TicketingReason, r#type::v1::ErrorReason as CommonReason,
};
use onsale_storage::{idempotency, postgres, redis};
use onsale_types::{ClaimId, PaymentId};
use tonic::Status;

use crate::{
    clients::{NeighborError, ProviderError, VoidError, providers::WebhookError},
    domain::{ClaimState, Provider, State},
};

/// Why a call could not be answered.
#[derive(Debug, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "the variants are the contract's reasons, which its error_reason.proto describes"
)]
pub enum Error {
    #[error("there is no payment {payment_id}")]
    PaymentNotFound { payment_id: PaymentId },
    #[error("there is no payment of claim {claim_id}")]
    ClaimHasNoPayment { claim_id: ClaimId },
    #[error("there is no claim {claim_id}")]
    ClaimNotFound { claim_id: ClaimId },
    #[error("claim {claim_id} cannot be paid: it is {claim_state} or about to expire")]
    ClaimNotPayable { claim_id: ClaimId, claim_state: ClaimState },
    #[error("payment {payment_id} of the claim is in progress")]
    OpenExists { payment_id: PaymentId },
    #[error("{provider} is not offered here")]
    ProviderNotConfigured { provider: Provider },
    #[error("{provider} refused the payment")]
    ProviderRefused { provider: Provider },
    #[error("payment {payment_id} is {state}: there is no money to give back")]
    NotRefundable { payment_id: PaymentId, state: State },
    #[error("a ticket of claim {claim_id} was checked in")]
    TicketCheckedIn { claim_id: ClaimId },
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    #[error(transparent)]
    Fields(#[from] InvalidFields),
    /// A provider failed where its outcome cannot be left to a worker.
    #[error("failed to ask the provider")]
    Provider(#[from] ProviderError),
    #[error("failed to ask a neighbor")]
    Neighbor(#[from] NeighborError),
    #[error("failed to keep a payment")]
    Store(#[from] postgres::Error),
    #[error("failed to tell watchers")]
    Hint(#[from] redis::Error),
    #[error("failed to answer a repeated request")]
    Request(#[from] idempotency::Error),
}

impl Error {
    /// The refusal of tickets to become void, for the claim they are of.
    pub fn of_void(claim_id: ClaimId) -> impl Fn(VoidError) -> Self {
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
