//! Stripe's objects, as far as we read them, and the payment updates that they imply.

use std::{collections::BTreeMap, fmt};

use onsale_types::{Currency, Money, PaymentId};
use serde::Deserialize;

use crate::domain::{FailureReason, ProviderUpdate};

/// Stripe's error code for a refund of money that was refunded before.
pub(super) const ALREADY_REFUNDED: &str = "charge_already_refunded";
/// Metadata field with our payment id.
const PAYMENT_ID: &str = "payment_id";

/// Stripe's Checkout Session.
#[derive(Debug, Deserialize)]
pub(super) struct Session {
    id: String,
    status: Option<String>,
    payment_status: Option<String>,
    payment_intent: Option<IntentField>,
    amount_total: Option<i64>,
    currency: Option<String>,
    url: Option<String>,
    client_reference_id: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// Payment intent of a session: its id, or the object if the request expanded it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum IntentField {
    Id(String),
    Expanded(Intent),
}

/// Stripe's PaymentIntent.
#[derive(Debug, Deserialize)]
pub(super) struct Intent {
    id: String,
    status: String,
    cancellation_reason: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// Stripe's Refund.
#[derive(Debug, Deserialize)]
pub(super) struct Refund {
    status: Option<String>,
}

/// Body of a response with an error status.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ErrorResponse {
    #[serde(default)]
    error: ErrorBody,
}

#[derive(Debug, Default, Deserialize)]
struct ErrorBody {
    r#type: Option<String>,
    code: Option<String>,
    message: Option<String>,
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.error.r#type, &self.error.code, &self.error.message];
        let known: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        formatter.write_str(&known.join(": "))
    }
}

impl ErrorResponse {
    /// Returns Stripe's error code, if it gave one.
    pub(super) fn into_code(self) -> Option<String> {
        self.error.code
    }
}

impl Refund {
    /// Returns true unless the refund failed or was canceled.
    pub(super) fn is_accepted(&self) -> bool {
        !matches!(self.status.as_deref(), Some("failed" | "canceled"))
    }
}

impl Session {
    /// Returns our payment id, or `None` if the session is not ours.
    pub(super) fn payment_id(&self) -> Option<PaymentId> {
        payment_id(self.metadata.as_ref())
            .or_else(|| PaymentId::parse(self.client_reference_id.as_deref()?).ok())
    }

    /// Returns the update for a new session, or `None` if it has no page.
    pub(super) fn opened(self) -> Option<ProviderUpdate> {
        // The response to a repeated idempotency key has the page even if the session has ended since. The next poll finds that.
        Some(ProviderUpdate::Opened { reference: self.id, checkout_url: self.url? })
    }

    /// Returns the outcome of the session, or `None` while it is open or its payment is processed.
    pub(super) fn update(&self) -> Result<Option<ProviderUpdate>, &'static str> {
        match self.status.as_deref() {
            Some("complete") if self.payment_status.as_deref() == Some("paid") => self.paid().map(Some),
            // A delayed payment method may still be processing; only the intent shows whether it failed.
            Some("complete") => Ok(self
                .intent()
                .filter(|intent| intent.has_failed())
                .map(|_| ProviderUpdate::Ended { reason: FailureReason::Declined })),
            Some("expired") => {
                let reason = self.intent().map_or(FailureReason::Expired, Intent::failure_reason);
                Ok(Some(ProviderUpdate::Ended { reason }))
            }
            Some("open") => Ok(None),
            Some(_) | None => Err("the session's status is unknown"),
        }
    }

    fn paid(&self) -> Result<ProviderUpdate, &'static str> {
        let charge = match &self.payment_intent {
            Some(IntentField::Id(id)) => id.clone(),
            Some(IntentField::Expanded(intent)) => intent.id.clone(),
            None => return Err("a paid session has no payment intent"),
        };
        let currency = self.currency.as_deref().map(str::to_uppercase).unwrap_or_default();
        let currency = Currency::parse(&currency).map_err(|_| "a paid session has no currency")?;
        let amount_minor = self.amount_total.ok_or("a paid session has no amount")?;
        Ok(ProviderUpdate::Paid {
            reference: self.id.clone(),
            charge,
            amount: Money::new(amount_minor, currency),
        })
    }

    fn intent(&self) -> Option<&Intent> {
        match &self.payment_intent {
            Some(IntentField::Expanded(intent)) => Some(intent),
            Some(IntentField::Id(_)) | None => None,
        }
    }
}

impl Intent {
    /// Returns our payment id, or `None` if the intent is not ours.
    pub(super) fn payment_id(&self) -> Option<PaymentId> {
        payment_id(self.metadata.as_ref())
    }

    /// Returns the failure reason of a canceled intent.
    pub(super) fn failure_reason(&self) -> FailureReason {
        match self.cancellation_reason.as_deref() {
            Some("requested_by_customer" | "abandoned") => FailureReason::Canceled,
            Some(_) | None => FailureReason::Expired,
        }
    }

    fn has_failed(&self) -> bool {
        matches!(self.status.as_str(), "requires_payment_method" | "canceled")
    }
}

fn payment_id(metadata: Option<&BTreeMap<String, String>>) -> Option<PaymentId> {
    PaymentId::parse(metadata?.get(PAYMENT_ID)?).ok()
}
