//! An outgoing request: kept for retries, and sent with the remaining time in every attempt.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status, body::Body};

use super::response::local_status;
use crate::deadline::Deadline;

pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Largest number in a `grpc-timeout`: eight digits.
const TIMEOUT_AMOUNT_MAX: u128 = 99_999_999;

#[derive(Debug)]
pub(super) struct Outgoing {
    uri: Uri,
    headers: HeaderMap,
    body: OutgoingBody,
}

#[derive(Debug)]
enum OutgoingBody {
    /// The whole body of a unary request.
    Kept(Bytes),
    /// A body that may be a stream and can be sent only once. `None` while it is being sent and after.
    Once(Option<Body>),
}

impl Outgoing {
    /// Creates a request that can be sent again. Refuses a body of more than `bytes_max` bytes.
    pub(super) async fn keep(
        uri: Uri,
        headers: HeaderMap,
        body: Body,
        bytes_max: usize,
    ) -> Result<Self, Status> {
        let collected = Limited::new(body, bytes_max).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let message = format!("the request is longer than {bytes_max} bytes");
                local_status(Code::InvalidArgument, ErrorReason::RequestTooLarge, message)
            } else {
                Status::from_error(error)
            }
        })?;
        Ok(Self { uri, headers, body: OutgoingBody::Kept(collected.to_bytes()) })
    }

    /// Creates a request whose body is streamed and can be sent once.
    pub(super) fn once(uri: Uri, headers: HeaderMap, body: Body) -> Self {
        Self { uri, headers, body: OutgoingBody::Once(Some(body)) }
    }

    /// Returns the request for one attempt, `None` if its body has been sent already.
    pub(super) fn attempt(&mut self, deadline: Deadline) -> Option<Request<Body>> {
        let body = match &mut self.body {
            OutgoingBody::Kept(bytes) => Body::new(Full::new(bytes.clone())),
            OutgoingBody::Once(body) => body.take()?,
        };
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(GRPC_TIMEOUT, timeout_header(deadline.remaining()));
        Some(request)
    }

    /// Returns true if the request can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.body, OutgoingBody::Kept(_))
    }

    /// Restores a request that was not sent.
    pub(super) fn restore(&mut self, unsent: Request<Body>) {
        if let OutgoingBody::Once(body) = &mut self.body {
            *body = Some(unsent.into_body());
        }
    }
}

/// Encodes `span` in the finest unit whose number has at most eight digits. Rounds down.
fn timeout_header(span: Duration) -> HeaderValue {
    let units = [(span.as_micros(), 'u'), (span.as_millis(), 'm'), (u128::from(span.as_secs()), 'S')];
    let fitting = units.into_iter().find(|(amount, _)| *amount <= TIMEOUT_AMOUNT_MAX);
    let (amount, unit) = fitting.unwrap_or((TIMEOUT_AMOUNT_MAX, 'S'));
    // Digits and a letter always form a valid header.
    HeaderValue::try_from(format!("{amount}{unit}")).unwrap_or(HeaderValue::from_static("0u"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::grpc_timeout::parse;

    #[test]
    fn timeout_uses_the_finest_unit_that_fits() {
        for (span, text) in [
            (Duration::ZERO, "0u"),
            (Duration::from_nanos(1_999), "1u"),
            (Duration::from_millis(950), "950000u"),
            (Duration::from_micros(99_999_999), "99999999u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(3_600 * 24 * 30), "2592000S"),
            (Duration::MAX, "99999999S"),
        ] {
            assert_eq!(timeout_header(span), text);
        }
    }

    proptest! {
        #[test]
        fn encoded_timeout_is_never_longer_and_at_most_a_second_shorter(micros in 0_u64..99_999_999_000_000) {
            let span = Duration::from_micros(micros);
            let read = parse(timeout_header(span).as_bytes()).unwrap();
            prop_assert!(read <= span);
            prop_assert!(span - read < Duration::from_secs(1));
            if span < Duration::from_secs(99) {
                prop_assert_eq!(read, span);
            }
        }
    }
}
