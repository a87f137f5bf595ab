//! Limits of plain HTTP requests, and error responses as a status with a JSON message.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};
use tokio::sync::Semaphore;

/// Header `Retry-After` of a 503, in seconds.
const RETRY_AFTER_SECONDS: HeaderValue = HeaderValue::from_static("5");

/// Returns an error response with the body `{"error": "…"}`; a 503 also has `Retry-After`.
pub(super) fn refuse(status: StatusCode, message: impl Into<String>) -> Response {
    let mut response = (status, Json(serde_json::json!({ "error": message.into() }))).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    response
}

/// Limits shared by all requests except gRPC-Web calls, which have limits of their own.
#[derive(Clone)]
pub(super) struct RequestLimits {
    /// One permit per request in progress, which may hold a whole body in memory.
    pub(super) permits: Arc<Semaphore>,
    /// Time limit of one request. Covers the reading of the body, because a caller may send it slowly.
    pub(super) timeout: Duration,
}

/// Runs the request within the limits. Responds with 503 if no permit is free or the time is over.
pub(super) async fn enforce(limits: RequestLimits, request: Request, next: Next) -> Response {
    let Ok(_permit) = limits.permits.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many requests in progress; try again");
    };
    match tokio::time::timeout(limits.timeout, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the request timed out; try again"),
    }
}
