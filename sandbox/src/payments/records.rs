//! What a provider knows: sessions, refunds, answers given, events undelivered. Plain data; how a session lives is in
//! [`session`](super::session).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Fields of a merchant's own, passed back as they came.
pub(super) type Metadata = BTreeMap<String, String>;

/// A checkout session with the payment behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) status: SessionStatus,
    pub(super) amount_total: i64,
    /// Lower case, as Stripe writes it.
    pub(super) currency: String,
    /// What is paid, one name per line item.
    pub(super) names: Vec<String>,
    pub(super) customer_email: Option<String>,
    pub(super) client_reference_id: Option<String>,
    pub(super) success_url: String,
    pub(super) cancel_url: Option<String>,
    pub(super) metadata: Metadata,
    /// In seconds since the epoch.
    pub(super) created: i64,
    pub(super) expires_at: i64,
    pub(super) intent: Intent,
}

/// Life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SessionStatus {
    Open,
    Complete,
    Expired,
}

/// The payment behind a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    pub(super) id: String,
    pub(super) status: IntentStatus,
    pub(super) metadata: Metadata,
    /// Whether the customer turned back, where it is canceled.
    pub(super) by_customer: bool,
}

/// Life of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IntentStatus {
    RequiresPaymentMethod,
    Succeeded,
    Canceled,
}

/// Money that went back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refund {
    pub(super) id: String,
    pub(super) payment_intent: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) metadata: Metadata,
    pub(super) created: i64,
}

/// An answer to a call with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdempotentResponse {
    pub(super) key: String,
    /// What was asked: path and parameters.
    pub(super) path: String,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) body: String,
}

/// Something a merchant is to hear of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Event {
    pub(super) id: String,
    /// Byte for byte what is sent and signed.
    pub(super) body: String,
}

/// A step of the book, as its journal has it: the new value of one thing. Applying one twice equals applying it once.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Change {
    Session(Session),
    Refund(Refund),
    /// Stored as `answer`.
    #[serde(rename = "answer")]
    Response(IdempotentResponse),
    Event(Event),
    /// The event was taken, or is given up.
    #[serde(rename = "done")]
    EventClosed(String),
}
