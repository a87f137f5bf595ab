//! Connections of the gRPC port: accepted up to `server.connections_max`, kept alive, retired by age, drained, and cut if
//! they do not end in time.
//!
//! Built on hyper instead of tonic's `Server`, which gives no access to a single connection: it could neither end the
//! streams nor bound the drain, and it boxes every body twice more.

use std::{
    convert::Infallible,
    future::Future,
    ops::RangeInclusive,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2, service::Service};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    RequestBody, ResponseBody,
    call_pipeline::CallPipeline,
    limits::{ConcurrencyLimit, Permit},
    lingering_close::LingeringClose,
};
use crate::{backoff::jittered, coalescing_writer::CoalescingWriter, config::ServerConfig};

/// Pause after a failed accept. The usual cause, a lack of file descriptors, would make the next one fail immediately.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest silence after connecting. Port scans and TCP probes send nothing.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Time for a retired connection to close after its streams were told to end.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Range of a connection's age limit, in percent of `server.connection_age_max`, so that connections that opened together
/// do not end together.
const CONNECTION_AGE_PERCENT: RangeInclusive<u32> = 90..=110;

/// All connections of a running server.
pub(super) struct Connections {
    /// Cancelled when the drain begins: no new connections and calls, and streams end.
    drain: CancellationToken,
    /// Cancelled to close the remaining connections without waiting for their calls.
    cut: CancellationToken,
    tracker: TaskTracker,
    open: Arc<ConcurrencyLimit>,
}

impl Connections {
    /// Starts to accept connections in the background.
    pub(super) fn serve(
        listener: TcpListener,
        pipeline: Arc<CallPipeline>,
        config: ServerConfig,
        drain: CancellationToken,
    ) -> Self {
        let connections = Self {
            drain,
            cut: CancellationToken::new(),
            tracker: TaskTracker::new(),
            open: ConcurrencyLimit::new(config.connections_max),
        };
        let acceptor = Acceptor {
            pipeline,
            config: Arc::new(config),
            drain: connections.drain.clone(),
            cut: connections.cut.clone(),
            tracker: connections.tracker.clone(),
            open: Arc::clone(&connections.open),
        };
        connections.tracker.spawn(acceptor.run(listener));
        connections
    }

    /// The limit that counts the open connections.
    pub(super) fn open(&self) -> Arc<ConcurrencyLimit> {
        Arc::clone(&self.open)
    }

    /// Lets calls finish and ends streams for at most `bound`, then cuts the remaining connections. Returns how many were cut.
    pub(super) async fn drain(&self, bound: Duration) -> usize {
        self.drain.cancel();
        self.tracker.close();
        if tokio::time::timeout(bound, self.tracker.wait()).await.is_ok() {
            return 0;
        }
        let left = self.open.in_use();
        tracing::warn!(
            connections = left,
            ?bound,
            "connections did not end within the drain time, cutting them"
        );
        self.cut.cancel();
        self.tracker.wait().await;
        left
    }
}

struct Acceptor {
    pipeline: Arc<CallPipeline>,
    config: Arc<ServerConfig>,
    drain: CancellationToken,
    cut: CancellationToken,
    tracker: TaskTracker,
    open: Arc<ConcurrencyLimit>,
}

impl Acceptor {
    /// Accepts until the drain begins, then closes the port.
    async fn run(self, listener: TcpListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => self.accept(stream),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection, retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn accept(&self, stream: TcpStream) {
        let Some(permit) = self.open.try_acquire() else {
            self.pipeline.metrics().connections_refused.increment(1);
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        let connection = Connection {
            pipeline: Arc::clone(&self.pipeline),
            config: Arc::clone(&self.config),
            drain: self.drain.clone(),
            ending: self.drain.child_token(),
            cut: self.cut.clone(),
            _permit: permit,
        };
        self.tracker.spawn(connection.run(stream));
    }
}

struct Connection {
    pipeline: Arc<CallPipeline>,
    config: Arc<ServerConfig>,
    drain: CancellationToken,
    /// Cancelled to end this connection's streams: by the drain, or after the grace that follows its age limit.
    ending: CancellationToken,
    cut: CancellationToken,
    _permit: Permit,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // hyper waits for a client's first bytes without a limit, which would hold up the drain.
        let mut first = [0];
        let speaks = tokio::select! {
            peeked = tokio::time::timeout(SILENCE_MAX, stream.peek(&mut first)) => matches!(peeked, Ok(Ok(1..))),
            () = self.drain.cancelled() => false,
        };
        if !speaks {
            return;
        }
        let service = ConnectionService { pipeline: Arc::clone(&self.pipeline), ending: self.ending.clone() };
        let io = TokioIo::new(CoalescingWriter::new(LingeringClose::new(stream)));
        let served = http2_builder(&self.config).serve_connection(io, service);
        let mut served = std::pin::pin!(served);
        let mut old = std::pin::pin!(tokio::time::sleep(jittered(
            self.config.connection_age_max,
            CONNECTION_AGE_PERCENT
        )));
        let ended = tokio::select! {
            ended = &mut served => Some(ended),
            () = self.cut.cancelled() => return,
            () = self.drain.cancelled() => None,
            () = &mut old => None,
        };
        let Some(ended) = ended else {
            // Sends GOAWAY: the client opens another connection for new calls.
            served.as_mut().graceful_shutdown();
            self.finish(served).await;
            return;
        };
        log_end(ended);
    }

    /// Waits for running calls. A retired connection's streams get `connection_age_grace`; a draining server's get none.
    async fn finish(&self, mut served: Pin<&mut impl Future<Output = hyper::Result<()>>>) {
        let grace = tokio::time::sleep(self.config.connection_age_grace);
        tokio::select! {
            ended = &mut served => return log_end(ended),
            () = self.cut.cancelled() => return,
            () = self.drain.cancelled() => {}
            () = grace => self.ending.cancel(),
        }
        // `Connections::drain` bounds a draining server; only a retired connection needs this bound.
        let overdue = async {
            if self.drain.is_cancelled() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(CLOSE_TIME_MAX).await;
        };
        tokio::select! {
            ended = &mut served => log_end(ended),
            () = self.cut.cancelled() => {}
            () = overdue => tracing::debug!("retired connection did not end in time, cutting it"),
        }
    }
}

fn http2_builder(config: &ServerConfig) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.streams_per_connection_max)
        .max_header_list_size(config.header_bytes_max)
        .keep_alive_interval(config.keepalive_interval)
        .keep_alive_timeout(config.keepalive_timeout);
    builder
}

fn log_end(ended: hyper::Result<()>) {
    // Debug only: peers disconnect without notice all the time.
    if let Err(error) = ended {
        tracing::debug!(error = %crate::error::Chain(&error), "connection failed");
    }
}

/// Passes the calls of one connection to the pipeline.
struct ConnectionService {
    pipeline: Arc<CallPipeline>,
    ending: CancellationToken,
}

impl Service<Request<Incoming>> for ConnectionService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = CallFuture;

    fn call(&self, request: Request<Incoming>) -> CallFuture {
        let request = request.map(RequestBody::from);
        CallFuture(Box::pin(Arc::clone(&self.pipeline).call(request, self.ending.clone())))
    }
}

/// A running call. Boxed, so that an open stream does not keep the memory of the call that opened it.
struct CallFuture(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>);

impl Future for CallFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}
