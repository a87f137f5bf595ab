//! Connections of the HTTP port (1.1, or 2 without TLS): limits their number, headers and idle time, and drains them with
//! the process.

use std::{sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};
use tower::ServiceExt;

use crate::config::HttpConfig;

/// Pause after a failed accept, most likely for lack of file descriptors: an immediate retry would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum size of all headers of one request. Tokens alone may have 8 KiB.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const HEADERS_MAX: usize = 100;

/// Maximum number of concurrent calls on one HTTP/2 connection. Envoy opens further connections if it needs more.
const STREAMS_PER_CONNECTION_MAX: u32 = 1000;

/// Idle time after which an HTTP/2 connection is pinged.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout of a ping; without a response the connection is closed.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Server of the HTTP port.
pub(super) struct Connections {
    pub(super) config: HttpConfig,
    /// Completes when the drain begins: no new connections, and open ones finish their requests.
    pub(super) drain: WaitForCancellationFutureOwned,
}

impl Connections {
    /// Accepts connections until the drain, then waits for open ones. The chassis limits that wait.
    pub(super) async fn serve(self, listener: TcpListener, router: Router) {
        let builder = Arc::new(builder(&self.config));
        let header_timeout = self.config.header_timeout;
        let permits = Arc::new(Semaphore::new(self.config.connections_max));
        let graceful = GracefulShutdown::new();
        let tracker = TaskTracker::new();
        let mut drain = std::pin::pin!(self.drain);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut drain => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // No permit: dropping the stream closes the connection.
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
            let (builder, router, watcher) = (Arc::clone(&builder), router.clone(), graceful.watcher());
            tracker.spawn(async move {
                let _permit = permit;
                let io = TokioIo::new(without_delay(stream));
                let request_started = CancellationToken::new();
                let service = router.map_request(mark_started(request_started.clone()));
                let served = builder.serve_connection(io, TowerToHyperService::new(service)).into_owned();
                tokio::select! {
                    // Disconnects are normal, so they are logged at debug level only.
                    served = watcher.watch(served) => if let Err(error) = served {
                        tracing::debug!(error, "connection ended early");
                    },
                    () = no_request_within(request_started, header_timeout) => tracing::debug!("connection closed, no request within the header timeout"),
                }
            });
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

fn builder(config: &HttpConfig) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(usize::try_from(HEADER_BYTES_MAX).unwrap_or(usize::MAX));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    builder
}

/// Returns a request mapper that marks the connection as used.
fn mark_started<B>(request_started: CancellationToken) -> impl FnMut(Request<B>) -> Request<B> + Clone {
    move |request| {
        request_started.cancel();
        request
    }
}

/// Completes if no request has begun within `timeout`; otherwise never. The HTTP builder limits only the headers of
/// HTTP/1.1, not the wait for the first bytes, from which it detects the version.
async fn no_request_within(request_started: CancellationToken, timeout: Duration) {
    if tokio::time::timeout(timeout, request_started.cancelled()).await.is_ok() {
        std::future::pending().await
    }
}

fn without_delay(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    stream
}
