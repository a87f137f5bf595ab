//! JSON in Stripe's format: objects for responses and webhooks, and errors.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    journal::JournalError,
    records::{IntentStatus, Refund, Session, SessionStatus},
    session::ActionError,
};

/// Encodes a session. `checkout` is the base URL of checkout pages; `None` omits the URL, for everybody but the merchant.
pub(super) fn session(session: &Session, checkout: Option<&str>) -> Value {
    let is_open = session.status == SessionStatus::Open;
    let url = checkout.filter(|_| is_open).map(|base| format!("{base}/checkout/{}", session.id));
    json!({
        "id": session.id, "object": "checkout.session", "mode": "payment", "livemode": false,
        "status": session.status,
        "payment_status": if session.is_paid() { "paid" } else { "unpaid" },
        // As at Stripe, an open session has no payment yet.
        "payment_intent": (!is_open).then_some(&session.intent.id),
        "amount_total": session.amount_total, "currency": session.currency,
        "customer_email": session.customer_email,
        "client_reference_id": session.client_reference_id,
        "metadata": session.metadata,
        "success_url": session.success_url, "cancel_url": session.cancel_url,
        "url": url, "created": session.created, "expires_at": session.expires_at,
    })
}

/// Encodes the payment of a session.
pub(super) fn intent(session: &Session) -> Value {
    let intent = &session.intent;
    let declined =
        session.status == SessionStatus::Complete && intent.status == IntentStatus::RequiresPaymentMethod;
    let is_canceled = intent.status == IntentStatus::Canceled;
    let reason = if intent.by_customer { "requested_by_customer" } else { "automatic" };
    json!({
        "id": intent.id, "object": "payment_intent", "livemode": false,
        "status": intent.status,
        "amount": session.amount_total, "currency": session.currency,
        "amount_received": if session.is_paid() { session.amount_total } else { 0 },
        "cancellation_reason": is_canceled.then_some(reason),
        "last_payment_error": declined.then(|| json!({ "type": "card_error", "code": "card_declined" })),
        "metadata": intent.metadata,
    })
}

/// Encodes a refund.
pub(super) fn refund(refund: &Refund) -> Value {
    json!({
        "id": refund.id, "object": "refund", "status": "succeeded",
        "payment_intent": refund.payment_intent,
        "amount": refund.amount, "currency": refund.currency,
        "metadata": refund.metadata, "created": refund.created,
    })
}

/// An error response.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, code: None, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub(super) fn missing(what: &str, id: &str) -> Self {
        let message = format!("No such {what}: '{id}'");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_code("resource_missing")
    }

    pub(super) fn fault(message: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "api_error", message)
    }

    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }
}

impl From<JournalError> for ApiError {
    fn from(error: JournalError) -> Self {
        tracing::error!(error = %onsale_kit::error::Chain(&error), "failed to write the journal, call rejected");
        Self::fault("failed to write the journal")
    }
}

impl From<ActionError> for ApiError {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::NotFound => {
                Self::new(StatusCode::NOT_FOUND, "invalid_request_error", error.to_string())
                    .with_code("resource_missing")
            }
            ActionError::NotOpen(_) => Self::invalid(error.to_string()),
            ActionError::Journal(error) => error.into(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = json!({ "type": self.kind, "code": self.code, "message": self.message });
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}
