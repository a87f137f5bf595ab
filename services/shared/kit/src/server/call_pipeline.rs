//! Every call passes through this pipeline: route, drain check, concurrency limit, deadline, authorization, handler,
//! metrics.
//!
//! It is one function instead of a stack of layers: each step sees the others' results, and an empty call costs one
//! allocation instead of ten. It knows nothing about any particular method.

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

/// Upper bound of the random retry delay of calls that were shed for load.
const OVERLOAD_RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Serves the calls of all connections.
pub(super) struct CallPipeline {
    routes: Routes,
    verifier: Arc<Verifier>,
    unary: Arc<ConcurrencyLimit>,
    streams: Arc<ConcurrencyLimit>,
    metrics: ServerMetrics,
    config: ServerConfig,
}

/// The results of the admission checks.
struct Admission {
    permit: Permit,
    deadline: Deadline,
    /// The stream's own deadline, if the caller set one.
    stream_deadline: Option<Instant>,
}

/// The handler's future, or the panic that prevented it.
type HandlerStart = Result<BoxFuture<Response<tonic::body::Body>, Infallible>, Box<dyn Any + Send>>;

/// Counts a call while its handler runs. A call that is dropped here counts as CANCELLED: its caller gave up, usually
/// because the call was slow, and exactly those calls must not be missing from the metrics.
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

    /// Returns the numbers of running unary calls and of open streams.
    pub(super) fn in_progress(&self) -> (usize, usize) {
        (self.unary.in_use(), self.streams.in_use())
    }

    /// Serves one call. `ending` is cancelled when its connection (or endpoint) ends its streams.
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
        // The scope gives every log line from here on the call's trace id and method.
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

    /// Decides whether the call is admitted. The checks run from cheap to costly, to keep a flood cheap.
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

    /// Passes the request to the handler. Not `async`: a future that waits would keep a copy of the request.
    fn begin(&self, route: &Route, request: Request<RequestBody>) -> HandlerStart {
        let request = match route.method.client_streaming {
            true => request,
            false => request.map(|body| body.limited(self.config.request_bytes_max)),
        };
        // A handler may panic before it returns its future.
        catch_unwind(AssertUnwindSafe(|| route.handler.call(request)))
    }

    /// Waits for the handler's response. A panic becomes INTERNAL and a passed deadline DEADLINE_EXCEEDED.
    async fn handle(&self, begun: HandlerStart, deadline: Deadline) -> Response<tonic::body::Body> {
        let work = match begun {
            Ok(work) => AssertUnwindSafe(work).catch_unwind(),
            Err(panic) => return self.panicked(&*panic),
        };
        match tokio::time::timeout_at(deadline.instant(), deadline.scope(work)).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Err(panic)) => self.panicked(&*panic),
            // The timeout has dropped the handler's future and thereby cancelled it.
            Err(_elapsed) => Status::from(Refusal::DeadlineExceeded).into_http(),
        }
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> Response<tonic::body::Body> {
        self.metrics.panics.increment(1);
        tracing::error!(panic = crate::tasks::panic_text(panic), "handler panicked");
        Status::from(Refusal::Internal).into_http()
    }

    /// Counts the response, and wraps the body of an open stream so that it can be ended.
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

/// Creates the span of a call; the handler fills the empty fields. Log lines take method and trace id from the call's
/// context, so only exported spans carry them.
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
            // Excludes `application/grpc-web`, whose responses have another form.
            .is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Response to a request that is not gRPC, for example from a browser: HTTP 415 without a body.
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
