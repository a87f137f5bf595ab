//! Responses: the retry hints of a failed one, and the body of a successful one.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use hyper::body::Incoming;
use onsale_proto::r#type::v1::ErrorReason;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tonic::{Code, Status, body::Body};
use tonic_types::{ErrorDetails, StatusExt};

use super::{backend::InFlight, metrics::CallCount};
use crate::{
    deadline::Deadline,
    error::{Chain, DOMAIN, Reason},
};

/// Header of gRPC's retry design: delay of a retry in milliseconds, negative to forbid it.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Creates a status on the client's side.
pub(super) fn local_status(code: Code, reason: ErrorReason, message: impl Into<String>) -> Status {
    let details = ErrorDetails::with_error_info(Reason::from(reason).as_str(), DOMAIN, []);
    Status::with_error_details(code, message, details)
}

pub(super) fn deadline_exceeded() -> Status {
    let message = "the deadline passed before the neighbor responded";
    local_status(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, message)
}

/// Returns UNAVAILABLE for any failure of the transport.
pub(super) fn connection_broken(error: &hyper::Error) -> Status {
    let message = format!("the connection to the neighbor failed: {}", Chain(error));
    local_status(Code::Unavailable, ErrorReason::DependencyUnavailable, message)
}

/// Returns true if the neighbor did not process the request because it closed the connection in good order. A GOAWAY
/// without an error fails only streams that it did not accept.
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}

/// Returns the status of a response without a body; `None` if a message may follow.
pub(super) fn failure_status<B>(response: &Response<B>) -> Option<Status> {
    Status::from_header_map(response.headers()).or_else(|| match response.status() {
        // Statuses that proxies send, mapped as in the gRPC specification.
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let message = format!("a proxy responded with {}", response.status());
            Some(local_status(Code::Unavailable, ErrorReason::DependencyUnavailable, message))
        }
        _ => None,
    })
}

/// The neighbor's wish about a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushback {
    Unspecified,
    After(Duration),
    Never,
}

/// Reads the pushback header, or the retry delay in the status details.
pub(super) fn pushback(headers: &HeaderMap, status: &Status) -> Pushback {
    if let Some(value) = headers.get(PUSHBACK) {
        let millis = value.to_str().ok().and_then(|text| text.parse().ok());
        // A malformed value forbids a retry, as in the gRPC specification.
        return millis.map_or(Pushback::Never, |millis| Pushback::After(Duration::from_millis(millis)));
    }
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    delay.map_or(Pushback::Unspecified, Pushback::After)
}

/// Returns true if the instance refuses because it is stopping; others may accept.
pub(super) fn is_draining(status: &Status) -> bool {
    let draining = Reason::from(ErrorReason::Draining).as_str();
    status.get_details_error_info().is_some_and(|info| info.reason == draining && info.domain == DOMAIN)
}

/// Wraps a response so that its body ends at the deadline and its code is counted.
pub(super) fn started(
    response: Response<Incoming>,
    deadline: Deadline,
    in_flight: InFlight,
    mut count: CallCount,
) -> Response<Body> {
    if let Some(status) = failure_status(&response) {
        count.end(status.code());
    }
    let timer = tokio::time::sleep_until(deadline.instant());
    response.map(|inner| Body::new(StartedBody { inner, timer, count, in_flight: Some(in_flight) }))
}

pin_project! {
    struct StartedBody {
        #[pin]
        inner: Incoming,
        #[pin]
        timer: Sleep,
        count: CallCount,
        // The call counts as running until its response ends; `None` after that.
        in_flight: Option<InFlight>,
    }
}

impl http_body::Body for StartedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.project();
        if this.in_flight.is_none() {
            return Poll::Ready(None);
        }
        let polled = this.inner.poll_frame(context);
        let is_late = match &polled {
            // Data after the deadline ends the call even if more is ready; trailers may still pass.
            Poll::Ready(Some(Ok(frame))) => frame.is_data() && this.timer.deadline() <= Instant::now(),
            Poll::Ready(_) => false,
            Poll::Pending => this.timer.poll(context).is_ready(),
        };
        if is_late {
            this.count.end(Code::DeadlineExceeded);
            *this.in_flight = None;
            return Poll::Ready(Some(Err(deadline_exceeded())));
        }
        match ready!(polled) {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.count.end(code(trailers));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                let status = connection_broken(&error);
                this.count.end(status.code());
                *this.in_flight = None;
                Poll::Ready(Some(Err(status)))
            }
            None => {
                // Without trailers the caller reads UNKNOWN, too.
                this.count.end(Code::Unknown);
                *this.in_flight = None;
                Poll::Ready(None)
            }
        }
    }
}

fn code(trailers: &HeaderMap) -> Code {
    trailers.get(Status::GRPC_STATUS).map_or(Code::Unknown, |value| Code::from_bytes(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pushback: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(
            http::HeaderName::from_static(PUSHBACK),
            http::HeaderValue::from_static(pushback),
        )])
    }

    #[test]
    fn pushback_header_delays_or_forbids_a_retry() {
        let status = Status::unavailable("");
        assert_eq!(pushback(&headers("250"), &status), Pushback::After(Duration::from_millis(250)));
        assert_eq!(pushback(&headers("-1"), &status), Pushback::Never);
        assert_eq!(pushback(&headers("soon"), &status), Pushback::Never);
        assert_eq!(pushback(&HeaderMap::new(), &status), Pushback::Unspecified);
    }

    #[test]
    fn retry_info_says_when() {
        let delay = Duration::from_secs(3);
        let details = ErrorDetails::with_retry_info(Some(delay));
        let status = Status::with_error_details(Code::Unavailable, "", details);
        assert_eq!(pushback(&HeaderMap::new(), &status), Pushback::After(delay));
    }

    #[test]
    fn gateway_error_of_a_proxy_means_unavailable() {
        for (http_status, code) in
            [(503, Some(Code::Unavailable)), (502, Some(Code::Unavailable)), (200, None)]
        {
            let response = Response::builder().status(http_status).body(()).unwrap();
            assert_eq!(failure_status(&response).map(|status| status.code()), code);
        }
    }

    #[test]
    fn draining_reason_counts_only_in_our_domain() {
        assert!(is_draining(&local_status(Code::Unavailable, ErrorReason::Draining, "")));
        assert!(!is_draining(&local_status(Code::Unavailable, ErrorReason::DependencyUnavailable, "")));
        let foreign = ErrorDetails::with_error_info("DRAINING", "elsewhere.dev", []);
        assert!(!is_draining(&Status::with_error_details(Code::Unavailable, "", foreign)));
    }
}
