//! Body of a response. The body of an open stream ends early, with a retryable status when its connection ends its
//! streams, at the caller's deadline, and when its source panics.
//!
//! One exists for each open stream, so each field costs memory a million times.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::{Code, Status};

use super::{limits::Permit, refusal::Refusal, route::Route, status};

pin_project! {
    #[project = ResponseBodyProjection]
    #[derive(Debug)]
    pub(crate) enum ResponseBody {
        /// A unary response, or a status alone.
        Whole { #[pin] body: tonic::body::Body },
        /// An open server stream.
        Stream { #[pin] stream: StreamBody },
    }
}

pin_project! {
    /// The body of an open stream.
    pub(crate) struct StreamBody {
        source: tonic::body::Body,
        // Completes when the connection ends its streams.
        #[pin]
        ending: WaitForCancellationFutureOwned,
        // `None` if the caller set no deadline. Boxed, because most streams have none.
        deadline: Option<Pin<Box<Sleep>>>,
        end: StreamEnd,
    }
}

/// Counts the stream's code when it is dropped.
struct StreamEnd {
    route: Arc<Route>,
    /// `None` until the end is known; a stream that is dropped before that was cancelled by its caller.
    code: Option<Code>,
    retry_after_max: std::time::Duration,
    _permit: Permit,
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        self.route.metrics.record_code(self.code.unwrap_or(Code::Cancelled));
    }
}

impl StreamBody {
    pub(super) fn new(
        source: tonic::body::Body,
        ending: WaitForCancellationFutureOwned,
        deadline: Option<tokio::time::Instant>,
        route: Arc<Route>,
        permit: Permit,
        retry_after_max: std::time::Duration,
    ) -> Self {
        let deadline = deadline.map(|instant| Box::pin(tokio::time::sleep_until(instant)));
        Self {
            source,
            ending,
            deadline,
            end: StreamEnd { route, code: None, retry_after_max, _permit: permit },
        }
    }

    fn poll_source(
        source: &mut tonic::body::Body,
        context: &mut Context<'_>,
        route: &Route,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // A panic in one stream must not end its connection and with it the other streams.
        catch_unwind(AssertUnwindSafe(|| Pin::new(source).poll_frame(context))).unwrap_or_else(|panic| {
            super::metrics::count_panic();
            let panic = crate::tasks::panic_text(&*panic);
            tracing::error!(method = route.path, panic, "stream panicked");
            Poll::Ready(Some(Ok(trailers(&Refusal::Internal.into()))))
        })
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        if this.end.code.is_some() {
            return Poll::Ready(None);
        }
        // Checked before the source: a source that always has another message would never let the stream end. These polls
        // are cheap: a waiting future only keeps its waker.
        let refusal = if this.ending.as_mut().poll(context).is_ready() {
            let retry_after = super::refusal::random_wait(this.end.retry_after_max);
            Some(Refusal::Draining { retry_after })
        } else if this.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(context).is_ready()) {
            Some(Refusal::DeadlineExceeded)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            let status = Status::from(refusal);
            this.end.code = Some(status.code());
            return Poll::Ready(Some(Ok(trailers(&status))));
        }
        match StreamBody::poll_source(this.source, context, &this.end.route) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(headers) = frame.trailers_mut() {
                    this.end.code = Some(status::normalize(headers));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.end.code = Some(Code::Ok);
                Poll::Ready(None)
            }
            other @ (Poll::Ready(Some(Err(_))) | Poll::Pending) => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.end.code.is_some()
    }
}

impl std::fmt::Debug for StreamBody {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StreamBody").field("method", &self.end.route.path).finish_non_exhaustive()
    }
}

impl ResponseBody {
    /// Wraps the body of a response that needs no deadline and no end by the server.
    pub(super) fn whole(body: tonic::body::Body) -> Self {
        Self::Whole { body }
    }
}

/// An empty body, for a response that is a status alone.
impl Default for ResponseBody {
    fn default() -> Self {
        Self::whole(tonic::body::Body::empty())
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.project() {
            ResponseBodyProjection::Whole { body } => body.poll_frame(context),
            ResponseBodyProjection::Stream { stream } => stream.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole { body } => body.is_end_stream(),
            Self::Stream { stream } => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole { body } => body.size_hint(),
            Self::Stream { .. } => SizeHint::default(),
        }
    }
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    status::write(status, &mut headers);
    Frame::trailers(headers)
}
