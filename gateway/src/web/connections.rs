//! Connections for plain HTTP (1.1, or 2 without TLS): accepted up to a limit, bounded in what they may send before a
//! request begins, and drained with the rest of the process.

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

/// After a failed accept (out of file descriptors, most likely) wait a little: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// All headers of one request together. Tokens are at most 8 KiB.
const HEADER_BYTES_MAX: u32 = 16 * 1024;
const HEADERS_MAX: usize = 100;

/// Calls of one browser at once; Envoy or another proxy opens more connections.
const STREAMS_PER_CONNECTION_MAX: u32 = 1000;

/// A ping after this much silence, and how long its answer may take.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The port's connections.
pub(super) struct Connections {
    pub(super) config: HttpConfig,
    /// Done when no new ones are to be taken and open ones are to finish.
    pub(super) drain: WaitForCancellationFutureOwned,
}

impl Connections {
    /// Accepts connections until the drain, then waits for those that are open. The chassis bounds that wait.
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
            // None left: the connection is closed at once.
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
            let (builder, router, watcher) = (Arc::clone(&builder), router.clone(), graceful.watcher());
            tracker.spawn(async move {
                let _permit = permit;
                let io = TokioIo::new(without_delay(stream));
                let request_started = CancellationToken::new();
                let service = router.map_request(mark_started(request_started.clone()));
                let served = builder.serve_connection(io, TowerToHyperService::new(service)).into_owned();
                tokio::select! {
                    // Peers vanish all the time; that is news only to who looks for it.
                    served = watcher.watch(served) => if let Err(error) = served {
                        tracing::debug!(error, "a connection ended early");
                    },
                    () = no_request_within(request_started, header_timeout) => tracing::debug!("a connection asked for nothing"),
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

/// Notes that a request has request_started.
fn mark_started<B>(request_started: CancellationToken) -> impl FnMut(Request<B>) -> Request<B> + Clone {
    move |request| {
        request_started.cancel();
        request
    }
}

/// Done when no request has begun within `timeout`. The builder bounds only the headers of HTTP/1.1, and not the wait for the
/// first bytes, which tell it the version.
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
