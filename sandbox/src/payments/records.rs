//! Records of the provider: sessions, refunds, idempotent responses and events. Plain data; the rules of a session are in
//! [`session`](super::session).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Key-value pairs that a merchant attaches to an object and receives back unchanged.
pub(super) type Metadata = BTreeMap<String, String>;

/// A checkout session with its payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) status: SessionStatus,
    /// Total in minor units.
    pub(super) amount_total: i64,
    /// ISO 4217 code in lower case, as at Stripe.
    pub(super) currency: String,
    /// Product names, one per line item.
    pub(super) names: Vec<String>,
    pub(super) customer_email: Option<String>,
    pub(super) client_reference_id: Option<String>,
    pub(super) success_url: String,
    pub(super) cancel_url: Option<String>,
    pub(super) metadata: Metadata,
    /// Creation time in Unix seconds.
    pub(super) created: i64,
    /// Expiry in Unix seconds.
    pub(super) expires_at: i64,
    pub(super) intent: Intent,
}

/// State of a session. Only an open session changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionStatus {
    Open,
    Complete,
    Expired,
}

/// The payment of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    pub(super) id: String,
    pub(super) status: IntentStatus,
    pub(super) metadata: Metadata,
    /// True if the customer canceled; false if the session expired.
    pub(super) by_customer: bool,
}

/// State of a payment, with the names that Stripe uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IntentStatus {
    RequiresPaymentMethod,
    Succeeded,
    Canceled,
}

/// A full refund of one payment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refund {
    pub(super) id: String,
    pub(super) payment_intent: String,
    /// Amount in minor units.
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) metadata: Metadata,
    pub(super) created: i64,
}

/// The stored response to a call with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdempotentResponse {
    pub(super) key: String,
    /// Path of the call. A repeat must have the same path and parameters.
    pub(super) path: String,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) body: String,
}

/// A webhook event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    /// The exact bytes that are signed and sent.
    pub(super) body: String,
}

/// One journaled change: the new value of one record. Applying it twice has the same result as applying it once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Session(Session),
    Refund(Refund),
    // Name in existing journals.
    #[serde(rename = "answer")]
    Response(IdempotentResponse),
    Event(Event),
    /// The event with this id was delivered, dropped or abandoned.
    #[serde(rename = "done")]
    EventClosed(String),
}
