//! One address of a neighbor: its connection, its running calls, and its failures.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::{client::conn::http2, rt::Executor};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tonic::body::Body;

use crate::coalescing_writer::CoalescingWriter;

pub(super) type Sender = http2::SendRequest<Body>;

/// Interval of HTTP/2 pings, and the time limit of an answer. A host that vanished silently is noticed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before another attempt to reach an address, and its maximum; the pause doubles with each failure in a row. Not a
/// `Breaker`: the pause grows, and the balancer shortens it while every address is down.
const DOWN_FIRST: Duration = Duration::from_millis(250);
const DOWN_MAX: Duration = Duration::from_secs(10);

/// Shortest pause between two attempts on one address, used while every address is down.
const DOWN_MIN: Duration = Duration::from_millis(50);

/// Outlier ejection: time for which an address that answered UNAVAILABLE gets no calls while there are others. Not a
/// `Breaker`: with no other address, calls still go to it.
const EJECTION: Duration = Duration::from_secs(1);

/// The cause of a failed connect.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("failed to connect")]
    Tcp(#[source] io::Error),
    #[error("failed to complete the HTTP/2 handshake")]
    Handshake(#[source] hyper::Error),
    #[error("failed to connect within {0:?}")]
    Timeout(Duration),
}

#[derive(Debug)]
pub(super) struct Backend {
    address: SocketAddr,
    calls: AtomicUsize,
    state: Mutex<BackendState>,
}

#[derive(Debug)]
struct BackendState {
    connection: Connection,
    /// Failed connects since the last success.
    failures: u32,
    ejection_end: Option<Instant>,
}

#[derive(Debug)]
enum Connection {
    /// Not opened yet, or closed.
    Idle,
    Connecting,
    Open(Sender),
    Down {
        since: Instant,
        until: Instant,
    },
}

/// The state of an address from a call's point of view.
pub(super) enum Availability {
    /// The connection is open. `is_preferred` is false while the address is ejected: calls prefer others.
    Open { sender: Sender, is_preferred: bool },
    /// A connection may be opened.
    Idle,
    /// A connection is being opened.
    Connecting,
    /// The last connect failed, and the pause after it is not over.
    Down,
}

/// Counts a running call until it is dropped.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Backend>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Backend {
    pub(super) fn new(address: SocketAddr) -> Self {
        let state = BackendState { connection: Connection::Idle, failures: 0, ejection_end: None };
        Self { address, calls: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of running calls.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn begin_call(self: &Arc<Self>) -> InFlight {
        self.calls.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// Returns the state at `now`. `are_all_down` shortens the pause after a failed connect to `DOWN_MIN`.
    pub(super) fn availability(&self, now: Instant, are_all_down: bool) -> Availability {
        let state = self.lock();
        match &state.connection {
            Connection::Open(sender) if !sender.is_closed() => Availability::Open {
                sender: sender.clone(),
                is_preferred: state.ejection_end.is_none_or(|end| end <= now),
            },
            // Closed by the neighbor, for example because of its age: open another.
            Connection::Open(_) | Connection::Idle => Availability::Idle,
            Connection::Connecting => Availability::Connecting,
            Connection::Down { until, .. } if *until <= now => Availability::Idle,
            Connection::Down { since, .. } => {
                let is_due = now.saturating_duration_since(*since) >= DOWN_MIN;
                if are_all_down && is_due { Availability::Idle } else { Availability::Down }
            }
        }
    }

    /// Returns true from a failed connect until the next one starts.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.lock().connection, Connection::Down { .. })
    }

    /// Claims the task of opening a connection. Returns false if none is needed or another caller has claimed it.
    pub(super) fn begin_connect(&self) -> bool {
        let mut state = self.lock();
        let is_needed = match &state.connection {
            Connection::Open(sender) => sender.is_closed(),
            Connection::Idle | Connection::Down { .. } => true,
            Connection::Connecting => false,
        };
        if is_needed {
            state.connection = Connection::Connecting;
        }
        is_needed
    }

    /// Records the result of the connect that [`Backend::begin_connect`] claimed.
    pub(super) fn end_connect(&self, result: Result<Sender, ConnectError>) {
        let mut state = self.lock();
        match result {
            Ok(sender) => {
                state.failures = 0;
                state.connection = Connection::Open(sender);
            }
            Err(_error) => {
                let doubled = DOWN_FIRST.saturating_mul(2_u32.saturating_pow(state.failures));
                state.failures = state.failures.saturating_add(1);
                let since = Instant::now();
                let until = since.checked_add(doubled.min(DOWN_MAX)).unwrap_or(since);
                state.connection = Connection::Down { since, until };
            }
        }
    }

    /// Ejects the address for `EJECTION`: calls prefer other addresses.
    pub(super) fn eject(&self) {
        self.lock().ejection_end = Instant::now().checked_add(EJECTION);
    }

    fn lock(&self) -> MutexGuard<'_, BackendState> {
        self.state.lock()
    }
}

/// Opens a connection. It closes when its sender and all its calls are gone.
pub(super) async fn connect(address: SocketAddr, connect_timeout: Duration) -> Result<Sender, ConnectError> {
    let connect = async {
        let stream = TcpStream::connect(address).await.map_err(ConnectError::Tcp)?;
        stream.set_nodelay(true).map_err(ConnectError::Tcp)?;
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(CoalescingWriter::new(stream)))
            .await
            .map_err(ConnectError::Handshake)
    };
    let (sender, connection) = timeout(connect_timeout, connect)
        .await
        .map_err(|_elapsed| ConnectError::Timeout(connect_timeout))??;
    // Not in the task set: it does no work of its own, and must outlive the tasks that still make calls at shutdown.
    TokioExecutor::new().execute(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%address, %error, "connection failed");
        }
    });
    Ok(sender)
}
