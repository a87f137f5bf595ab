//! The parts of Stripe's objects that we read, and what they mean for a payment.

use std::{collections::BTreeMap, fmt};

use onsale_types::{Currency, Money, PaymentId};
use serde::Deserialize;

use crate::domain::{Fact, FailureReason};

/// The code of the refusal to give money back that went back before.
pub(super) const ALREADY_REFUNDED: &str = "charge_already_refunded";
/// The field of ours in their objects.
const PAYMENT_ID: &str = "payment_id";

/// A Checkout Session.
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

/// A payment behind a session: its name, or the whole when it was asked for.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum IntentField {
    Id(String),
    Whole(Intent),
}

/// A PaymentIntent.
#[derive(Debug, Deserialize)]
pub(super) struct Intent {
    id: String,
    status: String,
    cancellation_reason: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
}

/// A refund.
#[derive(Debug, Deserialize)]
pub(super) struct Refund {
    status: Option<String>,
}

/// A refused call.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ErrorAnswer {
    #[serde(default)]
    error: ErrorBody,
}

#[derive(Debug, Default, Deserialize)]
struct ErrorBody {
    r#type: Option<String>,
    code: Option<String>,
    message: Option<String>,
}

impl fmt::Display for ErrorAnswer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.error.r#type, &self.error.code, &self.error.message];
        let said: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        formatter.write_str(&said.join(": "))
    }
}

impl ErrorAnswer {
    /// Stripe's code for it.
    pub(super) fn into_code(self) -> Option<String> {
        self.error.code
    }
}

impl Refund {
    /// Whether the money is on its way.
    pub(super) fn is_accepted(&self) -> bool {
        !matches!(self.status.as_deref(), Some("failed" | "canceled"))
    }
}

impl Session {
    /// Our name for the payment, if it is ours.
    pub(super) fn payment_id(&self) -> Option<PaymentId> {
        payment_id(self.metadata.as_ref())
            .or_else(|| PaymentId::parse(self.client_reference_id.as_deref()?).ok())
    }

    /// That there is a page to pay on.
    pub(super) fn opened(self) -> Option<Fact> {
        // An answer from memory has the page too, though the session may have ended since; the next look tells.
        Some(Fact::Opened { reference: self.id, checkout_url: self.url? })
    }

    /// What it means for the payment; `None` while nothing is decided.
    pub(super) fn fact(&self) -> Result<Option<Fact>, &'static str> {
        match self.status.as_deref() {
            Some("complete") if self.payment_status.as_deref() == Some("paid") => self.paid().map(Some),
            // The money may still be on its way; only the intent knows.
            Some("complete") => Ok(self
                .intent()
                .filter(|intent| intent.has_failed())
                .map(|_| Fact::Ended { reason: FailureReason::Declined })),
            Some("expired") => {
                let reason = self.intent().map_or(FailureReason::Expired, Intent::end);
                Ok(Some(Fact::Ended { reason }))
            }
            Some("open") => Ok(None),
            Some(_) | None => Err("the session's status is unknown"),
        }
    }

    fn paid(&self) -> Result<Fact, &'static str> {
        let charge = match &self.payment_intent {
            Some(IntentField::Id(id)) => id.clone(),
            Some(IntentField::Whole(intent)) => intent.id.clone(),
            None => return Err("a paid session has no payment intent"),
        };
        let currency = self.currency.as_deref().map(str::to_uppercase).unwrap_or_default();
        let currency = Currency::parse(&currency).map_err(|_| "a paid session has no currency")?;
        let amount_minor = self.amount_total.ok_or("a paid session has no amount")?;
        Ok(Fact::Paid { reference: self.id.clone(), charge, amount: Money::new(amount_minor, currency) })
    }

    fn intent(&self) -> Option<&Intent> {
        match &self.payment_intent {
            Some(IntentField::Whole(intent)) => Some(intent),
            Some(IntentField::Id(_)) | None => None,
        }
    }
}

impl Intent {
    /// Our name for the payment, if it is ours.
    pub(super) fn payment_id(&self) -> Option<PaymentId> {
        payment_id(self.metadata.as_ref())
    }

    /// Why it was canceled.
    pub(super) fn end(&self) -> FailureReason {
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
