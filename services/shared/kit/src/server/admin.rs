//! The operators' port: `/metrics`, `/livez`, `/readyz`. It is not reachable from outside and shares no limit with calls.

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

/// Only scrapers and probes connect; further connections are closed immediately.
const CONNECTIONS_MAX: usize = 64;

/// Longest wait for a request; the connection is closed after it.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest life of a connection. Probes and scrapes are short, and keep-alive saves them little.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(300);

/// The state that the port reports.
pub(super) struct Admin {
    pub(super) pipeline: Arc<CallPipeline>,
    pub(super) connections: Arc<ConcurrencyLimit>,
    pub(super) readiness: Readiness,
    pub(super) tasks: Tasks,
    pub(super) recorder: Arc<PrometheusHandle>,
}

/// Serves the port in the background until the returned token is cancelled.
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
            // Cancellation, age and an end by the peer need no different handling.
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
        tracing::debug!(%error, "admin connection failed");
    }
}

impl Admin {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "only GET\n");
        }
        match request.uri().path() {
            "/metrics" => text(StatusCode::OK, "text/plain; version=0.0.4", self.metrics()),
            // Liveness is the answer itself. Failures that a restart would not fix belong in /readyz.
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
