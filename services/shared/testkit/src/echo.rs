//! The test contract `onsale.testkit.v1.EchoService`, an implementation that counts its calls, and a bare tonic server for
//! it.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onsale_kit::tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_stream::{Stream, StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status, codegen::BoxStream, metadata::KeyAndValueRef};
use tonic_types::{ErrorDetails, StatusExt};

use self::v1::echo_service_server::EchoServiceServer;

/// Generated messages, client and server of the test contract.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    unreachable_pub,
    reason = "generated from the contract"
)]
pub mod v1 {
    tonic::include_proto!("onsale.testkit.v1");
}

/// The contract with its options, as an encoded `FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echo_descriptors.bin"));

/// Longest time that [`EchoServer::stop`] waits for running calls.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Implementation of the contract. Clones share their counters.
#[derive(Clone, Debug, Default)]
pub struct EchoService {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    instance: String,
    calls: Calls,
    /// Error that Echo and EchoOnce return instead of an echo; `None`: they echo.
    failure: Mutex<Option<Status>>,
    /// Number of calls of Fail by key.
    failures: Mutex<HashMap<String, u32>>,
}

/// Call counters by method. `Empty` has none, because benches measure it without the cost of counting.
#[derive(Debug, Default)]
pub struct Calls {
    /// Calls of the method `Echo`.
    pub echo: CallCounts,
    /// Calls of the method `EchoOnce`.
    pub echo_once: CallCounts,
    /// Calls of Watch; a call is finished when its stream was sent to its end.
    pub watch: CallCounts,
    /// Calls of Wait; a call is finished when it waited for its whole span.
    pub wait: CallCounts,
    /// Calls of the method `Fail`.
    pub fail: CallCounts,
    /// Calls of all `CallAs…` methods together.
    pub by_role: CallCounts,
}

/// Numbers of started, finished and cancelled calls.
#[derive(Debug, Default)]
pub struct CallCounts {
    started: AtomicU64,
    finished: AtomicU64,
    cancelled: AtomicU64,
}

impl CallCounts {
    /// Returns the number of calls that reached the handler.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    /// Returns the number of calls whose handler ran to its end.
    pub fn finished(&self) -> u64 {
        self.finished.load(Ordering::SeqCst)
    }

    /// Returns the number of calls that were dropped before their handler ran to its end.
    pub fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::SeqCst)
    }
}

/// Guard of one running call. Dropping it without `finish` counts the call as cancelled.
struct RunningCall {
    state: Arc<State>,
    count: fn(&Calls) -> &CallCounts,
    finished: bool,
}

impl RunningCall {
    fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let count = (self.count)(&self.state.calls);
        let end = if self.finished { &count.finished } else { &count.cancelled };
        end.fetch_add(1, Ordering::SeqCst);
    }
}

impl EchoService {
    /// Creates a service that reports the name `instance` in its responses.
    #[must_use]
    pub fn new(instance: impl Into<String>) -> Self {
        Self { state: Arc::new(State { instance: instance.into(), ..State::default() }) }
    }

    /// Returns the call counters, which all clones share.
    #[must_use]
    pub fn calls(&self) -> &Calls {
        &self.state.calls
    }

    /// Makes Echo and EchoOnce fail with `status` from now on; `None` makes them echo again.
    pub fn fail_with(&self, status: Option<Status>) {
        *self.state.failure.lock() = status;
    }

    /// Wraps the service for a tonic server.
    #[must_use]
    pub fn into_server(self) -> EchoServiceServer<Self> {
        EchoServiceServer::new(self)
    }

    fn begin(&self, count: fn(&Calls) -> &CallCounts) -> RunningCall {
        count(&self.state.calls).started.fetch_add(1, Ordering::SeqCst);
        RunningCall { state: Arc::clone(&self.state), count, finished: false }
    }

    fn seen<T>(&self, request: &Request<T>) -> v1::Seen {
        let mut headers = HashMap::new();
        for entry in request.metadata().iter() {
            if let KeyAndValueRef::Ascii(key, value) = entry {
                let value = String::from_utf8_lossy(value.as_encoded_bytes()).into_owned();
                headers.insert(key.as_str().to_owned(), value);
            }
        }
        v1::Seen { instance: self.state.instance.clone(), headers }
    }

    fn failure(&self) -> Result<(), Status> {
        self.state.failure.lock().clone().map_or(Ok(()), Err)
    }

    fn call_by_role<T>(&self, response: T) -> Result<Response<T>, Status> {
        self.begin(|calls| &calls.by_role).finish();
        Ok(Response::new(response))
    }
}

#[tonic::async_trait]
impl v1::echo_service_server::EchoService for EchoService {
    async fn echo(&self, request: Request<v1::EchoRequest>) -> Result<Response<v1::EchoResponse>, Status> {
        let running = self.begin(|calls| &calls.echo);
        let seen = Some(self.seen(&request));
        let failure = self.failure();
        running.finish();
        failure?;
        Ok(Response::new(v1::EchoResponse { text: request.into_inner().text, seen }))
    }

    async fn echo_once(
        &self,
        request: Request<v1::EchoOnceRequest>,
    ) -> Result<Response<v1::EchoOnceResponse>, Status> {
        let running = self.begin(|calls| &calls.echo_once);
        let seen = Some(self.seen(&request));
        let failure = self.failure();
        running.finish();
        failure?;
        Ok(Response::new(v1::EchoOnceResponse { text: request.into_inner().text, seen }))
    }

    async fn empty(
        &self,
        _request: Request<v1::EmptyRequest>,
    ) -> Result<Response<v1::EmptyResponse>, Status> {
        Ok(Response::new(v1::EmptyResponse {}))
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<BoxStream<v1::WatchResponse>>, Status> {
        let request = request.into_inner();
        let last = if request.messages == 0 { u32::MAX } else { request.messages };
        let interval = duration(request.interval);
        let running = self.begin(|calls| &calls.watch);
        let messages = tokio_stream::iter(1..=last).then(move |number| async move {
            if number > 1 && !interval.is_zero() {
                tokio::time::sleep(interval).await;
            }
            Ok(v1::WatchResponse { number })
        });
        Ok(Response::new(Box::pin(counted(messages, running))))
    }

    async fn wait(&self, request: Request<v1::WaitRequest>) -> Result<Response<v1::WaitResponse>, Status> {
        let running = self.begin(|calls| &calls.wait);
        tokio::time::sleep(duration(request.into_inner().span)).await;
        running.finish();
        Ok(Response::new(v1::WaitResponse {}))
    }

    async fn fail(&self, request: Request<v1::FailRequest>) -> Result<Response<v1::FailResponse>, Status> {
        self.begin(|calls| &calls.fail).finish();
        let request = request.into_inner();
        let calls = {
            let mut failures = self.state.failures.lock();
            let calls = failures.entry(request.key).or_default();
            *calls = calls.saturating_add(1);
            *calls
        };
        let over = request.times != 0 && calls > request.times;
        if over || request.code == 0 {
            return Ok(Response::new(v1::FailResponse { calls }));
        }
        let mut details = ErrorDetails::new();
        if let Some(delay) = request.retry_delay {
            details.set_retry_info(Some(duration(Some(delay))));
        }
        Err(Status::with_error_details(request.code.into(), request.message, details))
    }

    async fn call_as_anyone(
        &self,
        _request: Request<v1::CallAsAnyoneRequest>,
    ) -> Result<Response<v1::CallAsAnyoneResponse>, Status> {
        self.call_by_role(v1::CallAsAnyoneResponse {})
    }

    async fn call_as_customer(
        &self,
        _request: Request<v1::CallAsCustomerRequest>,
    ) -> Result<Response<v1::CallAsCustomerResponse>, Status> {
        self.call_by_role(v1::CallAsCustomerResponse {})
    }

    async fn call_as_organizer(
        &self,
        _request: Request<v1::CallAsOrganizerRequest>,
    ) -> Result<Response<v1::CallAsOrganizerResponse>, Status> {
        self.call_by_role(v1::CallAsOrganizerResponse {})
    }

    async fn call_as_staff(
        &self,
        _request: Request<v1::CallAsStaffRequest>,
    ) -> Result<Response<v1::CallAsStaffResponse>, Status> {
        self.call_by_role(v1::CallAsStaffResponse {})
    }

    async fn call_as_service(
        &self,
        _request: Request<v1::CallAsServiceRequest>,
    ) -> Result<Response<v1::CallAsServiceResponse>, Status> {
        self.call_by_role(v1::CallAsServiceResponse {})
    }
}

/// Bare tonic server of the contract without the layers of the kit, for tests of clients.
#[derive(Debug)]
pub struct EchoServer {
    service: EchoService,
    address: SocketAddr,
    tasks: Tasks,
}

impl EchoServer {
    /// Serves `service` at `address`; port 0 selects a free port.
    pub async fn start(service: EchoService, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let tasks = Tasks::new();
        let (served, token) = (service.clone().into_server(), tasks.token());
        tasks.spawn("echo-server", async move {
            let ended = tonic::transport::Server::builder()
                .add_service(served)
                .serve_with_incoming_shutdown(TcpListenerStream::new(listener), token.cancelled_owned());
            // Ignore the error: a test notices a dead server by its failing calls.
            let _ = ended.await;
        });
        Ok(Self { service, address, tasks })
    }

    /// Returns the address on which the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the served service, for its call counters.
    #[must_use]
    pub fn service(&self) -> &EchoService {
        &self.service
    }

    /// Stops listening and waits up to 5 s for running calls. The client must first end a stream that has no end.
    pub async fn stop(self) {
        self.tasks.shutdown(STOP_TIMEOUT).await;
    }
}

/// Forwards `messages` and marks the call as finished at their end.
fn counted<T>(
    messages: impl Stream<Item = T> + Send + 'static,
    running: RunningCall,
) -> impl Stream<Item = T> + Send + 'static {
    let mut running = Some(running);
    let end = tokio_stream::iter(std::iter::from_fn(move || {
        if let Some(running) = running.take() {
            running.finish();
        }
        None
    }));
    messages.chain(end)
}

fn duration(duration: Option<prost_types::Duration>) -> Duration {
    duration.and_then(|duration| onsale_proto::convert::duration_from_pb(duration).ok()).unwrap_or_default()
}
