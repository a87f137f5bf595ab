//! Body of a request on its way to the handler, limited to `server.request_bytes_max`.
//!
//! The limit is here instead of in each generated server's setting, so that no service can forget it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::refusal::Refusal;

/// A request's body. A concrete type, so that the generated servers box it only once.
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    /// `None` for a stream of requests, whose total size is not limited.
    limit: Option<Limit>,
}

#[derive(Debug)]
enum Source {
    /// The body of an HTTP/2 request on the gRPC port.
    Wire(Incoming),
    /// A body from a layer in front, such as gRPC-Web.
    Layered(tonic::body::Body),
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    bytes_max: usize,
    bytes_left: usize,
}

impl RequestBody {
    /// Fails the body with REQUEST_TOO_LARGE once more than `bytes_max` bytes have arrived.
    #[must_use]
    pub(crate) fn limited(mut self, bytes_max: usize) -> Self {
        self.limit = Some(Limit { bytes_max, bytes_left: bytes_max });
        self
    }
}

impl From<Incoming> for RequestBody {
    fn from(body: Incoming) -> Self {
        Self { source: Source::Wire(body), limit: None }
    }
}

impl From<tonic::body::Body> for RequestBody {
    fn from(body: tonic::body::Body) -> Self {
        Self { source: Source::Layered(body), limit: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = match &mut self.source {
            // CANCELLED is not logged as an error: the client has left, and nobody reads the status.
            Source::Wire(body) => Pin::new(body)
                .poll_frame(context)
                .map_err(|error| Status::cancelled(format!("the request broke off: {error}"))),
            Source::Layered(body) => Pin::new(body).poll_frame(context),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(limit)) = (&polled, &mut self.limit) {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            match limit.bytes_left.checked_sub(bytes) {
                Some(bytes_left) => limit.bytes_left = bytes_left,
                None => {
                    let refusal = Refusal::RequestTooLarge { bytes_max: limit.bytes_max };
                    return Poll::Ready(Some(Err(refusal.into())));
                }
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Wire(body) => body.is_end_stream(),
            Source::Layered(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Wire(body) => body.size_hint(),
            Source::Layered(body) => body.size_hint(),
        }
    }
}
