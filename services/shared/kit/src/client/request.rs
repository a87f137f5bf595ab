//! A request on its way out: kept so that it can be sent again, and given its deadline with every attempt.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use onsale_proto::r#type::v1::ErrorReason;
use tonic::{Code, Status, body::Body};

use super::response::local_status;
use crate::deadline::Deadline;

pub(super) const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The specification allows eight digits.
const TIMEOUT_AMOUNT_MAX: u128 = 99_999_999;

#[derive(Debug)]
pub(super) struct Outgoing {
    uri: Uri,
    headers: HeaderMap,
    body: OutgoingBody,
}

#[derive(Debug)]
enum OutgoingBody {
    /// The whole request.
    Kept(Bytes),
    /// A request that may be a stream: it can be sent once. `None` while it is under way and after.
    Once(Option<Body>),
}

impl Outgoing {
    /// A request whose body is kept, which must then be at most `bytes_max` long.
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

    /// A request that is sent as it comes.
    pub(super) fn once(uri: Uri, headers: HeaderMap, body: Body) -> Self {
        Self { uri, headers, body: OutgoingBody::Once(Some(body)) }
    }

    /// The request for one attempt; `None` when it is gone.
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

    /// Whether it can be sent more than once.
    pub(super) fn is_kept(&self) -> bool {
        matches!(self.body, OutgoingBody::Kept(_))
    }

    /// Takes back what could not be sent.
    pub(super) fn restore(&mut self, unsent: Request<Body>) {
        if let OutgoingBody::Once(body) = &mut self.body {
            *body = Some(unsent.into_body());
        }
    }
}

/// `span` as `grpc-timeout`, in the finest unit that has room for it; never longer than `span`.
fn timeout_header(span: Duration) -> HeaderValue {
    let units = [(span.as_micros(), 'u'), (span.as_millis(), 'm'), (u128::from(span.as_secs()), 'S')];
    let fitting = units.into_iter().find(|(amount, _)| *amount <= TIMEOUT_AMOUNT_MAX);
    let (amount, unit) = fitting.unwrap_or((TIMEOUT_AMOUNT_MAX, 'S'));
    // Digits and a letter are always a valid header.
    HeaderValue::try_from(format!("{amount}{unit}")).unwrap_or(HeaderValue::from_static("0u"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::server::grpc_timeout::parse;

    #[test]
    fn a_timeout_takes_the_finest_unit_with_room() {
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
        fn the_far_side_reads_at_most_what_was_meant(micros in 0_u64..99_999_999_000_000) {
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
