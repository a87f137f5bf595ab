//! Payment providers behind one small trait, and which of them are offered here.

mod stripe;

use std::sync::Arc;

use onsale_types::Timestamp;

pub use self::stripe::{Stripe, StripeSettings};
use crate::domain::{Claim, Fact, Payment, Provider};

/// Somebody who takes money for us. Every call may be made again with the same effect.
#[tonic::async_trait]
pub trait PaymentProvider: Send + Sync {
    /// Asks for a page to pay `payment` on: [`Fact::Opened`].
    async fn open(&self, payment: &Payment, claim: &Claim) -> Result<Fact, ProviderError>;

    /// What became of the payment it calls `reference`; `None` while the customer may still pay.
    async fn look(&self, reference: &str) -> Result<Option<Fact>, ProviderError>;

    /// Has the page of `reference` take no more money; answers what became of the payment.
    async fn close(&self, reference: &str) -> Result<Option<Fact>, ProviderError>;

    /// Gives the money of `payment` back, for the refund it has.
    async fn refund(&self, payment: &Payment) -> Result<(), ProviderError>;

    /// Reads a webhook that came by `now`; nothing in it is believed before its signature is.
    fn read_webhook(&self, webhook: &RawWebhook<'_>, now: Timestamp) -> Result<Webhook, WebhookError>;
}

/// A provider did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It said no; asking again would not help. Nothing was done.
    #[error("the provider refused to {attempt}: {message}")]
    Refused {
        /// What was asked.
        attempt: &'static str,
        /// Its code for the refusal, where it has one.
        code: Option<String>,
        /// Its words.
        message: String,
    },
    /// It knows nothing of what was named.
    #[error("the provider does not know what to {attempt}")]
    Missing {
        /// What was asked.
        attempt: &'static str,
    },
    /// It cannot do it now. Nothing was done.
    #[error("the provider is unavailable to {attempt}: {message}")]
    Unavailable {
        /// What was asked.
        attempt: &'static str,
        /// Why.
        message: String,
    },
    /// No answer, or none that makes sense: it may have been done.
    #[error("the provider's answer to {attempt} is unknown: {message}")]
    Unknown {
        /// What was asked.
        attempt: &'static str,
        /// Why.
        message: String,
    },
}

impl ProviderError {
    /// A word for metrics.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Missing { .. } => "missing",
            Self::Unavailable { .. } => "unavailable",
            Self::Unknown { .. } => "unknown",
        }
    }
}

/// A webhook as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct RawWebhook<'a> {
    /// Its headers; names in lower case.
    pub headers: &'a [(String, Vec<u8>)],
    /// Its body, byte for byte.
    pub body: &'a [u8],
}

impl RawWebhook<'_> {
    /// The first header of this name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// What a webhook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The provider's id of the event.
    pub event_id: String,
    /// The provider's name for what happened.
    pub event_type: String,
    /// What it means for a payment of ours. `None`: we have no use for it.
    pub news: Option<News>,
}

/// What a provider has to say about a payment of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Our name for the payment, as we gave it to the provider.
    pub payment_id: onsale_types::PaymentId,
    /// What is said.
    pub fact: Fact,
}

/// Why a webhook is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// It is not signed by the provider.
    #[error("the webhook is not signed by the provider")]
    Signature,
    /// It is signed, and its time is outside the tolerance.
    #[error("the webhook's time is outside the tolerance")]
    TooOld,
    /// It is signed, and not what the provider documents.
    #[error("the webhook is malformed: {0}")]
    Malformed(&'static str),
}

/// The providers that are offered here.
#[derive(Clone, Default)]
pub struct Providers {
    /// Stripe.
    pub stripe: Option<Arc<dyn PaymentProvider>>,
    /// The local one of development and tests.
    pub sandbox: Option<Arc<dyn PaymentProvider>>,
}

impl Providers {
    /// The provider, if it is offered.
    #[must_use]
    pub fn get(&self, provider: Provider) -> Option<&Arc<dyn PaymentProvider>> {
        match provider {
            Provider::Stripe => self.stripe.as_ref(),
            Provider::Sandbox => self.sandbox.as_ref(),
            Provider::Paystack => None,
        }
    }
}

impl std::fmt::Debug for Providers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stripe, sandbox) = (self.stripe.is_some(), self.sandbox.is_some());
        formatter.debug_struct("Providers").field("stripe", &stripe).field("sandbox", &sandbox).finish()
    }
}
