//! Answers in HTTP's own words: a status and, where it is not a success, a sentence as JSON.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use tokio::sync::Semaphore;

/// When to come again, for those who can.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// A refusal: `{"error": "…"}`.
pub(super) fn refuse(status: StatusCode, sentence: impl Into<String>) -> Response {
    let mut response = (status, Json(serde_json::json!({ "error": sentence.into() }))).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}

/// How much may be asked of us at once, and for how long.
#[derive(Clone)]
pub(super) struct RequestLimits {
    /// A permit for each request that may still be answered. Each may hold a whole body in memory.
    pub(super) permits: Arc<Semaphore>,
    /// For one request: the caller may be sending its body drop by drop.
    pub(super) timeout: Duration,
}

/// The answer, unless it would go beyond the limits.
pub(super) async fn enforce(limits: RequestLimits, request: Request, next: Next) -> Response {
    let Ok(_permit) = limits.permits.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests at once; try again");
    };
    match tokio::time::timeout(limits.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => refuse(StatusCode::SERVICE_UNAVAILABLE, "it took too long; try again"),
    }
}
