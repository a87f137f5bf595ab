//! Payment providers behind one trait, and the set that this deployment offers.

mod stripe;

use std::{fmt, sync::Arc};

use onsale_types::{PaymentId, Timestamp};

pub(crate) use self::stripe::{Stripe, StripeSettings};
use crate::domain::{Claim, Payment, Provider, ProviderUpdate};

/// A payment provider. Every call is idempotent.
#[tonic::async_trait]
pub(crate) trait PaymentProvider: Send + Sync {
    /// Opens a session on whose page the customer pays; returns [`ProviderUpdate::Opened`].
    async fn open_session(&self, payment: &Payment, claim: &Claim) -> Result<ProviderUpdate, ProviderError>;

    /// Returns the outcome of a session, or `None` while the customer can still pay.
    async fn poll_session(&self, reference: &str) -> Result<Option<ProviderUpdate>, ProviderError>;

    /// Ends a session, so that it takes no more money; returns its outcome.
    async fn expire_session(&self, reference: &str) -> Result<Option<ProviderUpdate>, ProviderError>;

    /// Refunds the money of a payment that has a refund.
    async fn refund_payment(&self, payment: &Payment) -> Result<(), ProviderError>;

    /// Reads a webhook that arrived by `now`. Parses nothing before the signature is verified.
    fn read_webhook(&self, webhook: &RawWebhook<'_>, now: Timestamp) -> Result<Webhook, WebhookError>;
}

/// A failed call to a provider. `attempt` completes "failed to …" and is the metric label of the call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// The provider did nothing, and a repeated call would be refused too. `code` is its code for the refusal, if it gave one.
    #[error("failed to {attempt}: the provider refused: {message}")]
    Refused { attempt: &'static str, code: Option<String>, message: String },
    #[error("failed to {attempt}: the provider does not know the object")]
    Missing { attempt: &'static str },
    /// The provider did nothing; a repeated call may succeed.
    #[error("failed to {attempt}: the provider is unavailable: {message}")]
    Unavailable { attempt: &'static str, message: String },
    /// No answer, or an unreadable one: the provider may have carried out the call.
    #[error("failed to {attempt}: the outcome at the provider is unknown: {message}")]
    Unknown { attempt: &'static str, message: String },
}

impl ProviderError {
    /// Returns the metric label.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Missing { .. } => "missing",
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// A webhook before its signature is verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawWebhook<'a> {
    /// HTTP headers; names in lower case.
    pub(crate) headers: &'a [(String, Vec<u8>)],
    /// Raw body, byte for byte, because the signature covers it.
    pub(crate) body: &'a [u8],
}

impl RawWebhook<'_> {
    /// Returns the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// A webhook whose signature and age were verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Webhook {
    /// The provider's id of the event.
    pub(crate) event_id: String,
    pub(crate) event_type: String,
    /// `None` if the event changes no payment of ours.
    pub(crate) update: Option<WebhookUpdate>,
}

/// The update of one payment that a webhook carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebhookUpdate {
    /// Our id of the payment, which the provider stores with its session.
    pub(crate) payment_id: PaymentId,
    pub(crate) update: ProviderUpdate,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WebhookError {
    #[error("the webhook has no valid signature of the provider")]
    Signature,
    /// The signed time differs from ours by more than the tolerance, in either direction.
    #[error("the signed time of the webhook is outside the tolerance")]
    TooOld,
    /// The signature is valid, but the content is not as the provider documents it.
    #[error("the webhook is malformed: {0}")]
    Malformed(&'static str),
}

/// The providers that this deployment offers; `None`: not configured.
#[derive(Clone, Default)]
pub(crate) struct Providers {
    pub(crate) stripe: Option<Arc<dyn PaymentProvider>>,
    /// The local provider of development and tests.
    pub(crate) sandbox: Option<Arc<dyn PaymentProvider>>,
}

impl Providers {
    pub(crate) fn get(&self, provider: Provider) -> Option<&Arc<dyn PaymentProvider>> {
        match provider {
            Provider::Stripe => self.stripe.as_ref(),
            Provider::Sandbox => self.sandbox.as_ref(),
            Provider::Paystack => None,
        }
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stripe, sandbox) = (self.stripe.is_some(), self.sandbox.is_some());
        formatter.debug_struct("Providers").field("stripe", &stripe).field("sandbox", &sandbox).finish()
    }
}
