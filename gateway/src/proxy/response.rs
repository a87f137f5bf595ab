//! Responses of services on their way to the caller. Each ends with a gRPC status; if the connection to the service breaks,
//! the gateway adds one.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use onsale_kit::error::Reason;
use onsale_proto::r#type::v1::ErrorReason;
use pin_project_lite::pin_project;
use tonic::{Code, Status, body::Body};
use tonic_types::StatusExt;

use crate::error::Error;

/// Returns the status for the caller of a failed call. An UNAVAILABLE of our own channel is replaced, because its message
/// contains internal addresses.
pub(super) fn public_status(status: Status) -> Status {
    let unreachable = Reason::from(ErrorReason::DependencyUnavailable).as_str();
    let is_ours = status.get_details_error_info().is_none_or(|info| info.reason == unreachable);
    match status.code() {
        Code::Unavailable if is_ours => Error::Unreachable(status.message().to_owned()).into(),
        _ => status,
    }
}

/// Returns the response in the form that the chassis counts: a status without a message is in the headers.
///
/// # Errors
///
/// Fails if the response is not gRPC, or if a unary response ends or breaks before its first frame.
pub(super) async fn ensure_status(
    response: Response<Body>,
    is_stream: bool,
) -> Result<Response<Body>, Status> {
    let (mut head, mut body) = response.into_parts();
    if head.headers.contains_key(Status::GRPC_STATUS) {
        // Envoy recognizes a response without messages only if the body is empty, so that the stream ends with the headers.
        return Ok(Response::from_parts(head, Body::empty()));
    }
    if head.status != StatusCode::OK {
        return Err(Error::NotGrpc(head.status).into());
    }
    if is_stream {
        return Ok(Response::from_parts(head, Body::new(ForwardedBody::new(None, body))));
    }
    match body.frame().await {
        Some(Ok(frame)) => match frame.into_trailers() {
            Ok(trailers) => {
                head.headers.extend(trailers);
                Ok(Response::from_parts(head, Body::empty()))
            }
            Err(first) => Ok(Response::from_parts(head, Body::new(ForwardedBody::new(Some(first), body)))),
        },
        Some(Err(status)) => Err(public_status(status)),
        None => Err(missing_status()),
    }
}

pin_project! {
    /// Body that forwards all frames of the service and always ends with trailers that contain a status.
    struct ForwardedBody {
        first: Option<Frame<Bytes>>,
        source: Body,
        is_ended: bool,
    }
}

impl ForwardedBody {
    fn new(first: Option<Frame<Bytes>>, source: Body) -> Self {
        Self { first, source, is_ended: false }
    }
}

impl http_body::Body for ForwardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.project();
        if *this.is_ended {
            return Poll::Ready(None);
        }
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let frame = match std::task::ready!(Pin::new(this.source).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(status)) => trailers(&public_status(status)),
            None => trailers(&missing_status()),
        };
        *this.is_ended = frame.is_trailers();
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

fn missing_status() -> Status {
    Error::Unreachable("the response ended without a status".to_owned()).into()
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    if let Err(error) = status.add_header(&mut headers) {
        tracing::error!(%error, "failed to encode a status, response ends without one");
    }
    Frame::trailers(headers)
}
