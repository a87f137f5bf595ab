//! One address of a neighbour: its connection, how busy it is, and whether it is worth trying.

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

/// How often a connection is asked whether it still lives, and how long the answer may take. A host that vanished
/// without a word is noticed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause before an address that could not be reached is tried again; it doubles with each failure in a row. Not a `Breaker`:
/// the pause grows, and the balancer shortens it while every address is down.
const DOWN_FIRST: Duration = Duration::from_millis(250);
const DOWN_MAX: Duration = Duration::from_secs(10);

/// With every address down there is nothing to lose; but even then no address is tried more often than this.
const DOWN_MIN: Duration = Duration::from_millis(50);

/// Outlier ejection: time for which an address that answered UNAVAILABLE gets no calls while there are others. Not a
/// `Breaker`: with no other address, calls still go to it.
const EJECTION: Duration = Duration::from_secs(1);

/// An address could not be reached.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("failed to connect")]
    Tcp(#[source] io::Error),
    #[error("failed to shake hands")]
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
    /// Failures to connect since the last success.
    failures: u32,
    ejection_end: Option<Instant>,
}

#[derive(Debug)]
enum Connection {
    /// Nobody has needed it yet, or it was closed.
    Idle,
    Connecting,
    Open(Sender),
    Down {
        since: Instant,
        until: Instant,
    },
}

/// What an address has to offer at the moment.
pub(super) enum Availability {
    /// A connection; `is_preferred` is false while the address is ejected: other addresses come first.
    Open { sender: Sender, is_preferred: bool },
    /// A connection could be opened.
    Idle,
    /// One is being opened.
    Connecting,
    /// It could not be reached a moment ago.
    Down,
}

/// A running call; ends the count when dropped.
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

    /// Calls running now.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn begin_call(self: &Arc<Self>) -> InFlight {
        self.calls.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(self))
    }

    /// What there is. `are_all_down`: every address is down, so the usual pause is cut short.
    pub(super) fn availability(&self, now: Instant, are_all_down: bool) -> Availability {
        let state = self.lock();
        match &state.connection {
            Connection::Open(sender) if !sender.is_closed() => Availability::Open {
                sender: sender.clone(),
                is_preferred: state.ejection_end.is_none_or(|end| end <= now),
            },
            // Closed by the far side, e.g. because it was old: open another.
            Connection::Open(_) | Connection::Idle => Availability::Idle,
            Connection::Connecting => Availability::Connecting,
            Connection::Down { until, .. } if *until <= now => Availability::Idle,
            Connection::Down { since, .. } => {
                let is_due = now.saturating_duration_since(*since) >= DOWN_MIN;
                if are_all_down && is_due { Availability::Idle } else { Availability::Down }
            }
        }
    }

    /// Whether it is down, whatever is done about it.
    pub(super) fn is_down(&self) -> bool {
        matches!(self.lock().connection, Connection::Down { .. })
    }

    /// Takes on the opening of a connection; false when somebody else already does.
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

    /// The end of what [`Backend::begin_connect`] began.
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

    /// Prefers other addresses for the next second.
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
    // Not in the task set: it does no work of its own, and must outlive the tasks that still call at shutdown.
    TokioExecutor::new().execute(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%address, %error, "connection broke");
        }
    });
    Ok(sender)
}
