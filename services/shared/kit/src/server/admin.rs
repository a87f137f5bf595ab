//! The operators' port: `/metrics`, `/livez`, `/readyz`. Never reachable from outside, and never in the way of calls.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{call_pipeline::CallPipeline, limits::ConcurrencyLimit};
use crate::{health::Readiness, tasks::Tasks};

/// Scrapers and probes are few.
const CONNECTIONS_MAX: usize = 64;

/// A connection that sends no request for this long is closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// No connection lives longer: a probe or a scrape is over in a moment, and keep-alive saves little.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);

/// What the port shows.
pub(super) struct Admin {
    pub(super) pipeline: Arc<CallPipeline>,
    pub(super) connections: Arc<ConcurrencyLimit>,
    pub(super) readiness: Readiness,
    pub(super) tasks: Tasks,
    pub(super) recorder: Arc<PrometheusHandle>,
}

/// Serves the port until the token is cancelled.
pub(super) fn serve(listener: TcpListener, admin: Admin) -> CancellationToken {
    let stop = CancellationToken::new();
    TaskTracker::new().spawn(accept(listener, Arc::new(admin), stop.clone()));
    stop
}

async fn accept(listener: TcpListener, admin: Arc<Admin>, stop: CancellationToken) {
    let open = ConcurrencyLimit::new(CONNECTIONS_MAX);
    let tracker = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Some(permit) = open.try_acquire() else { continue };
        let (admin, stop) = (Arc::clone(&admin), stop.clone());
        tracker.spawn(async move {
            let _permit = permit;
            let connection = tokio::time::timeout(CONNECTION_AGE_MAX, connection(stream, admin));
            // Cancelled, too old or closed by the peer: all the same here.
            let _ = stop.run_until_cancelled(connection).await;
        });
    }
}

async fn connection(stream: TcpStream, admin: Arc<Admin>) {
    let service = service_fn(move |request| {
        let response = admin.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "an admin connection ended early");
    }
}

impl Admin {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            "/metrics" => text(StatusCode::OK, "text/plain; version=0.0.4", self.metrics()),
            // Alive is who answers. What a restart would not heal has no place here.
            "/livez" => text(StatusCode::OK, "text/plain", "ok\n"),
            "/readyz" => self.ready(),
            _ => text(StatusCode::NOT_FOUND, "text/plain", "there is /metrics, /livez, /readyz\n"),
        }
    }

    fn metrics(&self) -> String {
        let (requests, streams) = self.pipeline.in_progress();
        let gauge = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let metrics = self.pipeline.metrics();
        metrics.in_flight.set(gauge(requests));
        metrics.streams.set(gauge(streams));
        metrics.connections.set(gauge(self.connections.in_use()));
        self.tasks.report_worker_ages();
        self.recorder.render()
    }

    fn ready(&self) -> Response<Full<Bytes>> {
        let verdict = self.readiness.verdict();
        let mut reasons: BTreeMap<_, _> =
            verdict.failing.iter().map(|(name, reason)| (*name, reason.as_str())).collect();
        if verdict.draining {
            reasons.insert("drain", "the service is stopping");
        }
        if !verdict.started {
            reasons.insert("start", "the first checks have not run");
        }
        let body = serde_json::json!({ "ready": verdict.is_ready(), "failing": reasons });
        let status = if verdict.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        text(status, "application/json", body.to_string())
    }
}

fn text(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}
