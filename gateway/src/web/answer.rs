//! Answers in HTTP's own words: a status and, where it is not a success, a sentence as JSON.

use std::time::Duration;

use axum::{
    Json,
    extract::Request,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::RETRY_AFTER};

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

/// The answer, unless it takes longer than `time_max`: the caller may be sending its body drop by drop.
pub(super) async fn in_time(time_max: Duration, request: Request, next: Next) -> Response {
    match tokio::time::timeout(time_max, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => refuse(StatusCode::SERVICE_UNAVAILABLE, "it took too long; try again"),
    }
}
