//! A request's body on its way to a handler, cut off at the size limit.
//!
//! The limit is here and not in each generated server's setting, so that no service can forget it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::refusal::Refusal;

/// A request's body. Concrete on purpose: the generated servers box it once, and need not box it twice.
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    /// None for a stream of requests, which has no end to count towards.
    limit: Option<Limit>,
}

#[derive(Debug)]
enum Source {
    /// Straight from the wire.
    Wire(Incoming),
    /// From a layer in front, such as gRPC-Web.
    Layered(tonic::body::Body),
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    bytes_max: usize,
    bytes_left: usize,
}

impl RequestBody {
    /// Cuts the body off after `bytes_max`.
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
            // Nobody is left to read the answer, and it is no fault of ours to be logged.
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
