//! The way of every call: which method, may it come in, may the caller, by when; then the handler; then the count.
//!
//! One function in one place instead of a stack of layers: each step sees the others, and an empty call pays for one
//! allocation and not for ten. Nothing here knows what a method does.

use std::{
    any::Any,
    convert::Infallible,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use http::{HeaderValue, Method as HttpMethod, Request, Response, StatusCode, header::CONTENT_TYPE};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, codegen::BoxFuture};
use tracing::{Instrument, Span, field::Empty};

use super::{
    RequestBody, ResponseBody, StreamBody, grpc_timeout,
    limits::{ConcurrencyLimit, Permit},
    metrics::ServerMetrics,
    refusal::{Refusal, random_wait},
    route::{Route, Routes},
    status,
};
use crate::{
    auth::Verifier,
    config::ServerConfig,
    deadline::Deadline,
    error::Violations,
    telemetry::propagation::{self, CallContext},
};

/// Clients that were turned away for load come back after a random time up to this.
const OVERLOAD_RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Answers calls.
pub(super) struct CallPipeline {
    routes: Routes,
    verifier: Arc<Verifier>,
    unary: Arc<ConcurrencyLimit>,
    streams: Arc<ConcurrencyLimit>,
    metrics: ServerMetrics,
    config: ServerConfig,
}

/// What a call was let in with.
struct Admission {
    permit: Permit,
    /// The end of the handler's work.
    deadline: Deadline,
    /// The end of the stream, when the caller set one.
    stream_deadline: Option<Instant>,
}

/// The handler's work, or what it panicked with instead.
type HandlerStart = Result<BoxFuture<Response<tonic::body::Body>, Infallible>, Box<dyn Any + Send>>;

/// A call in its handler. Dropped without an answer it was given up by its caller, mostly because it took too long: just
/// the calls that must not be missing from the metrics.
struct RunningHandler<'a> {
    route: &'a Route,
    started: Instant,
    is_answered: bool,
}

impl Drop for RunningHandler<'_> {
    fn drop(&mut self) {
        self.route.metrics.record_duration(self.started.elapsed());
        if !self.is_answered {
            self.route.metrics.record_code(Code::Cancelled);
        }
    }
}

impl CallPipeline {
    pub(super) fn new(routes: Routes, verifier: Arc<Verifier>, config: ServerConfig) -> Self {
        Self {
            routes,
            verifier,
            unary: ConcurrencyLimit::new(config.requests_in_flight_max),
            streams: ConcurrencyLimit::new(config.streams_max),
            metrics: ServerMetrics::new(),
            config,
        }
    }

    pub(super) fn routes(&self) -> &Routes {
        &self.routes
    }

    pub(super) fn metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// Unary calls and streams under way.
    pub(super) fn in_progress(&self) -> (usize, usize) {
        (self.unary.in_use(), self.streams.in_use())
    }

    /// Answers one call that came over a connection; `ending` is cancelled when that connection ends its streams.
    pub(super) async fn call(
        self: Arc<Self>,
        mut request: Request<RequestBody>,
        ending: CancellationToken,
    ) -> Response<ResponseBody> {
        if !is_grpc(&request) {
            return not_grpc();
        }
        let Some(route) = self.routes.find(request.uri().path()).map(Arc::clone) else {
            return refuse(&Refusal::MethodUnknown.into());
        };
        let started = Instant::now();
        let admission = match self.admit(&route, &mut request, started, &ending).await {
            Ok(admission) => admission,
            Err(status) => {
                route.metrics.record_duration(started.elapsed());
                route.metrics.record_code(status.code());
                return refuse(&status);
            }
        };
        let span = span(&route);
        let parent =
            if self.config.join_callers_trace { propagation::extract(request.headers()) } else { None };
        let trace = propagation::join_trace(&span, parent);
        let begun = self.begin(&route, request);
        // From here on, whatever is logged belongs to the call.
        let call = CallContext { trace, name: route.path };
        call.scope(async {
            let mut running = RunningHandler { route: &route, started, is_answered: false };
            let response = self.handle(begun, admission.deadline).instrument(span).await;
            running.is_answered = true;
            drop(running);
            self.finish(Arc::clone(&route), response, admission, ending)
        })
        .await
    }

    /// Whether the call may come in. Cheap refusals come first, so that a flood is turned away at the least cost.
    async fn admit(
        &self,
        route: &Route,
        request: &mut Request<RequestBody>,
        now: Instant,
        ending: &CancellationToken,
    ) -> Result<Admission, Status> {
        if ending.is_cancelled() {
            return Err(
                Refusal::Draining { retry_after: random_wait(self.config.drain.retry_after_max) }.into()
            );
        }
        let limit = if route.method.server_streaming { &self.streams } else { &self.unary };
        let permit = match limit.try_acquire() {
            Some(permit) => permit,
            None if route.is_exempt => limit.acquire_exempt(),
            None => {
                return Err(Refusal::Overloaded { retry_after: random_wait(OVERLOAD_RETRY_AFTER_MAX) }.into());
            }
        };
        let timeout = grpc_timeout::from_headers(request.headers()).map_err(|_| malformed_timeout())?;
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Refusal::DeadlineExceeded.into());
        }
        let handler_time = timeout.unwrap_or(self.config.deadline_default).min(self.config.deadline_max);
        let stream_deadline =
            timeout.filter(|_| route.method.server_streaming).and_then(|span| now.checked_add(span));

        if let Some(identity) = self.verifier.authorize(request.headers(), route.method.roles).await? {
            request.extensions_mut().insert(identity);
        }
        Ok(Admission { permit, deadline: Deadline::after(handler_time), stream_deadline })
    }

    /// Hands the request to the handler. Before the work begins: whatever waits would keep the request beside it.
    fn begin(&self, route: &Route, request: Request<RequestBody>) -> HandlerStart {
        let request = match route.method.client_streaming {
            true => request,
            false => request.map(|body| body.limited(self.config.request_bytes_max)),
        };
        // A handler may panic before it gives its future away.
        catch_unwind(AssertUnwindSafe(|| route.handler.call(request)))
    }

    /// The handler's answer; or, when it panics or is late, ours.
    async fn handle(&self, begun: HandlerStart, deadline: Deadline) -> Response<tonic::body::Body> {
        let work = match begun {
            Ok(work) => AssertUnwindSafe(work).catch_unwind(),
            Err(panic) => return self.panicked(&*panic),
        };
        match tokio::time::timeout_at(deadline.instant(), deadline.scope(work)).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Err(panic)) => self.panicked(&*panic),
            // Dropping the work has cancelled the handler.
            Err(_elapsed) => Status::from(Refusal::DeadlineExceeded).into_http(),
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Response<tonic::body::Body> {
        self.metrics.panics.increment(1);
        tracing::error!(panic = crate::tasks::panic_text(panic), "a handler panicked");
        Status::from(Refusal::Internal).into_http()
    }

    /// Counts the answer, and watches over it when it is a stream.
    fn finish(
        &self,
        route: Arc<Route>,
        response: Response<tonic::body::Body>,
        admission: Admission,
        ending: CancellationToken,
    ) -> Response<ResponseBody> {
        let (mut head, body) = response.into_parts();
        let code = status::normalize(&mut head.headers);
        let is_open_stream = route.method.server_streaming && code == Code::Ok;
        let body = if is_open_stream {
            let Admission { permit, stream_deadline, .. } = admission;
            let retry_after_max = self.config.drain.retry_after_max;
            let ending = ending.cancelled_owned();
            let stream = StreamBody::new(body, ending, stream_deadline, route, permit, retry_after_max);
            ResponseBody::Stream { stream }
        } else {
            route.metrics.record_code(code);
            ResponseBody::whole(body)
        };
        Response::from_parts(head, body)
    }
}

/// One span per call. Its fields are filled by the handler; method and trace id are with the call's context already,
/// so only a span that is exported has them too.
fn span(route: &Route) -> Span {
    if propagation::is_exporting() {
        tracing::info_span!(
            "rpc",
            otel.name = route.path,
            otel.kind = "server",
            rpc.system = "grpc",
            rpc.service = route.method.service,
            rpc.method = route.method.name,
            request_id = Empty,
            resource_id = Empty,
        )
    } else {
        tracing::info_span!("rpc", request_id = Empty, resource_id = Empty)
    }
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    request.method() == HttpMethod::POST
        && content_type
            .and_then(|value| value.strip_prefix(b"application/grpc"))
            // Not `-web`, which only begins alike: its answers have another form.
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Something that does not speak gRPC, such as a browser: HTTP's own words are all it understands.
fn not_grpc() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn refuse(status: &Status) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    status::write(status, response.headers_mut());
    response
}

fn malformed_timeout() -> Status {
    let mut violations = Violations::new();
    violations.push("grpc-timeout", "must be at most 8 digits and one of H, M, S, m, u, n");
    violations.finish().err().map_or_else(|| Refusal::Internal.into(), Status::from)
}
