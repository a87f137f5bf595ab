//! Connections: accepted up to a limit, kept alive, aged, drained, and cut when they will not end.
//!
//! Written on hyper directly and not on tonic's `Server`: that one gives no hold on a connection, so it could neither
//! end its streams nor bound the drain, and it boxes every body twice more on the way.

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

/// After a failed accept (out of file descriptors, most likely) wait a little: it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A peer that connects and says nothing for this long is no client: a port scan, or a probe of the port.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// When an old connection's streams have been ended, it may take this long to finish.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Connections that were opened together must not end together.
const CONNECTION_AGE_PERCENT: RangeInclusive<u32> = 90..=110;

/// The connections of a running server.
pub(super) struct Connections {
    /// Cancelled when no new connections and calls are to be taken and streams are to end.
    drain: CancellationToken,
    /// Cancelled when what is left is to be cut.
    cut: CancellationToken,
    tracker: TaskTracker,
    open: Arc<ConcurrencyLimit>,
}

impl Connections {
    /// Accepts connections from here on.
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

    /// The connections that are open.
    pub(super) fn open(&self) -> Arc<ConcurrencyLimit> {
        Arc::clone(&self.open)
    }

    /// Lets calls finish and ends streams, for at most `bound`; cuts what is left. Answers how many were cut.
    pub(super) async fn drain(&self, bound: Duration) -> usize {
        self.drain.cancel();
        self.tracker.close();
        if tokio::time::timeout(bound, self.tracker.wait()).await.is_ok() {
            return 0;
        }
        let left = self.open.in_use();
        tracing::warn!(connections = left, ?bound, "connections did not end in time and are cut");
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
    /// Ends, and closes the port, when the drain begins.
    async fn run(self, listener: TcpListener) {
        while let Some(accepted) = self.drain.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => self.accept(stream),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
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
    /// Cancelled when this connection's streams are to end: with the drain, or at its age.
    ending: CancellationToken,
    cut: CancellationToken,
    _permit: Permit,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // hyper waits for a client's first bytes without bound, and with it the drain would.
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
            // No new calls on this connection; the client opens another one.
            served.as_mut().graceful_shutdown();
            self.finish(served).await;
            return;
        };
        log_end(ended);
    }

    /// Waits for the calls under way. Streams of an old connection have a grace; those of a draining server have none.
    async fn finish(&self, mut served: Pin<&mut impl Future<Output = hyper::Result<()>>>) {
        let grace = tokio::time::sleep(self.config.connection_age_grace);
        tokio::select! {
            ended = &mut served => return log_end(ended),
            () = self.cut.cancelled() => return,
            () = self.drain.cancelled() => {}
            () = grace => self.ending.cancel(),
        }
        // A draining server is cut by its own bound; an old connection by this one.
        let overdue = async {
            if self.drain.is_cancelled() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(CLOSE_TIME_MAX).await;
        };
        tokio::select! {
            ended = &mut served => log_end(ended),
            () = self.cut.cancelled() => {}
            () = overdue => tracing::debug!("an old connection did not end in time and is cut"),
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
    // Peers vanish all the time; that is news only to who looks for it.
    if let Err(error) = ended {
        tracing::debug!(error = %crate::error::Chain(&error), "a connection ended early");
    }
}

/// Hands the calls of one connection to the pipeline.
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

/// A call being answered. Boxed, so that an open stream does not keep the memory of the call that opened it.
struct CallFuture(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>);

impl Future for CallFuture {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}
