//! A server of the echo contract behind the whole kit, and clients of it.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    auth,
    config::{ChassisConfig, NoConfig, load},
    deadline::Deadline,
    error::{Kind, QuotaViolation, Reason, ServiceError, Violations, to_status},
    server::{Chassis, RunningServer},
    telemetry::propagation,
};
use onsale_proto::{auth::v1::Role, r#type::v1::ErrorReason};
use onsale_testkit::{
    echo::{
        self, EchoService,
        v1::{self, echo_service_client::EchoServiceClient, echo_service_server::EchoServiceServer},
    },
    service::environment,
    tokens::TestIssuer,
};
use onsale_types::{Clock, SystemClock};
use tokio_stream::StreamExt;
use tonic::{
    Code, Request, Response, Status,
    codegen::BoxStream,
    metadata::MetadataValue,
    service::interceptor::InterceptedService,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;

/// Time after which a wait has failed, long enough for a slow machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) type Client = EchoServiceClient<InterceptedService<Channel, Bearer>>;

/// A running server and the issuer that it trusts.
pub(crate) struct Harness {
    pub(crate) server: RunningServer,
    pub(crate) issuer: TestIssuer,
    pub(crate) echo: EchoService,
}

impl Harness {
    /// Starts a server with default settings except `settings`, such as (`SERVER__DEADLINE_MAX`, `5s`).
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_at(settings, Arc::new(SystemClock)).await
    }

    pub(crate) async fn start_at(settings: &[(&str, &str)], clock: Arc<dyn Clock>) -> Self {
        let issuer = TestIssuer::with_clock(Arc::clone(&clock));
        let echo = EchoService::new("echo");
        let mut chassis =
            Chassis::new("echo", config(&issuer, settings), clock).expect("the settings are good");
        chassis.add_descriptors(echo::DESCRIPTORS);
        chassis.add_service(EchoServiceServer::new(Probe { echo: echo.clone() }));
        let server = chassis.start().await.expect("the server starts");
        Self { server, issuer, echo }
    }

    /// Connects a client with the token of a new customer.
    pub(crate) async fn customer(&self) -> Client {
        self.client(Some(&self.issuer.token(Role::Customer))).await
    }

    /// Connects a client with this token, on a connection of its own.
    pub(crate) async fn client(&self, token: Option<&str>) -> Client {
        EchoServiceClient::with_interceptor(self.channel().await, Bearer::new(token))
    }

    pub(crate) async fn channel(&self) -> Channel {
        let endpoint =
            Endpoint::from_shared(format!("http://{}", self.server.address())).expect("an address is a URI");
        endpoint.connect().await.expect("the server accepts connections")
    }

    /// Fetches a page of the operators' port; returns the HTTP status line and the body.
    pub(crate) async fn admin(&self, path: &str) -> (String, String) {
        http_get(self.server.admin_address(), path).await
    }
}

/// Makes an HTTP/1.1 GET request; returns the status line and the body.
pub(crate) async fn http_get(address: std::net::SocketAddr, path: &str) -> (String, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the admin port is open");
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the answer is text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("the answer has headers");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

/// Chassis settings for a server that trusts `issuer`, with free ports and a short drain.
pub(crate) fn config(issuer: &TestIssuer, settings: &[(&str, &str)]) -> ChassisConfig {
    let (mut config, NoConfig {}) =
        load("echo", "", &environment(issuer, settings)).expect("the settings of the test are good");
    config.auth = issuer.auth_config();
    config
}

/// Adds a token to every call.
#[derive(Clone, Debug)]
pub(crate) struct Bearer(Option<MetadataValue<tonic::metadata::Ascii>>);

impl Bearer {
    pub(crate) fn new(token: Option<&str>) -> Self {
        Self(token.map(|token| format!("Bearer {token}").parse().expect("a token is ASCII")))
    }
}

impl tonic::service::Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(bearer) = &self.0 {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        Ok(request)
    }
}

/// Returns the reason of a status; all our statuses have one.
#[track_caller]
pub(crate) fn reason(status: &Status) -> String {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("a status without ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "onsale.dev");
    info.reason.clone()
}

/// Returns the retry delay of a status.
pub(crate) fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_error_details().retry_info().and_then(|retry| retry.retry_delay)
}

#[track_caller]
pub(crate) fn assert_status(status: &Status, code: Code, expected_reason: &str) {
    assert_eq!((status.code(), reason(status)), (code, expected_reason.to_owned()), "{status:?}");
}

pub(crate) fn echo_request(text: &str) -> Request<v1::EchoRequest> {
    Request::new(v1::EchoRequest { text: text.to_owned() })
}

/// Errors that the handler below returns on request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("failed to save hold 17 in the table secrets")]
    Save(#[source] std::io::Error),
    #[error("failed to reach the database at 10.0.0.1")]
    Unreachable,
    #[error("at most 4 tickets per customer")]
    TooMany,
}

impl ServiceError for ProbeError {
    fn kind(&self) -> Kind {
        match self {
            Self::Save(_) => Kind::Internal,
            Self::Unreachable => Kind::Unavailable,
            Self::TooMany => Kind::Limited,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Save(_) => ErrorReason::Internal.into(),
            Self::Unreachable => ErrorReason::DependencyUnavailable.into(),
            Self::TooMany => Reason::from_proto("ERROR_REASON_TOO_MANY_TICKETS"),
        }
    }

    fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::TooMany => vec![("tickets_max", "4".to_owned())],
            Self::Save(_) | Self::Unreachable => Vec::new(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        matches!(self, Self::TooMany).then_some(Duration::from_secs(7))
    }

    fn quota(&self) -> Option<QuotaViolation> {
        matches!(self, Self::TooMany)
            .then(|| QuotaViolation { subject: "customer:1".to_owned(), description: "4 tickets".to_owned() })
    }
}

impl From<ProbeError> for Status {
    fn from(error: ProbeError) -> Self {
        to_status(&error)
    }
}

/// The testkit's echo service, with an Echo that acts on the request's text.
pub(crate) struct Probe {
    pub(crate) echo: EchoService,
}

#[tonic::async_trait]
impl v1::echo_service_server::EchoService for Probe {
    async fn echo(&self, request: Request<v1::EchoRequest>) -> Result<Response<v1::EchoResponse>, Status> {
        let text = match request.get_ref().text.as_str() {
            "panic" => panic!("requested by the test"),
            "internal" => return Err(ProbeError::Save(std::io::Error::other("disk full")).into()),
            "unavailable" => return Err(ProbeError::Unreachable.into()),
            "limited" => return Err(ProbeError::TooMany.into()),
            "bare internal" => return Err(Status::internal("password=hunter2")),
            "violations" => {
                let mut violations = Violations::new();
                violations.check::<u32, _>("quantity", "many".parse::<u32>());
                violations.require::<()>("event_id", None);
                violations.push("seat_ids[2]", "is listed twice");
                violations.finish()?;
                String::new()
            }
            "who" => {
                let identity = auth::identity(&request)?;
                format!("{} {:?} {:?}", identity.subject, identity.roles, identity.email)
            }
            "traceparent" => propagation::current_traceparent().unwrap_or_default(),
            "remaining" => Deadline::current()
                .map_or(String::new(), |deadline| format!("{}", deadline.remaining().as_millis())),
            "log" => {
                tracing::info!(answer = 42, "requested by the test");
                "logged".to_owned()
            }
            _ => return self.echo.echo(request).await,
        };
        Ok(Response::new(v1::EchoResponse { text, seen: None }))
    }

    async fn empty(&self, request: Request<v1::EmptyRequest>) -> Result<Response<v1::EmptyResponse>, Status> {
        self.echo.empty(request).await
    }

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<BoxStream<v1::WatchResponse>>, Status> {
        // A number that no test asks for: the stream panics at its second message.
        if request.get_ref().messages == PANIC_MESSAGES {
            let messages = tokio_stream::iter(1..).then(|number| async move {
                // Gives the first message time to be sent before the second panics.
                tokio::time::sleep(Duration::from_millis(20)).await;
                assert!(number < 2, "requested by the test");
                Ok(v1::WatchResponse { number })
            });
            return Ok(Response::new(Box::pin(messages)));
        }
        self.echo.watch(request).await
    }

    async fn wait(&self, request: Request<v1::WaitRequest>) -> Result<Response<v1::WaitResponse>, Status> {
        self.echo.wait(request).await
    }

    async fn fail(&self, request: Request<v1::FailRequest>) -> Result<Response<v1::FailResponse>, Status> {
        self.echo.fail(request).await
    }

    async fn call_as_anyone(
        &self,
        request: Request<v1::CallAsAnyoneRequest>,
    ) -> Result<Response<v1::CallAsAnyoneResponse>, Status> {
        self.echo.call_as_anyone(request).await
    }

    async fn call_as_service(
        &self,
        request: Request<v1::CallAsServiceRequest>,
    ) -> Result<Response<v1::CallAsServiceResponse>, Status> {
        self.echo.call_as_service(request).await
    }
}

/// Number of messages that makes [`Probe::watch`] panic.
pub(crate) const PANIC_MESSAGES: u32 = 777;

pub(crate) fn wait_request(span: Duration) -> Request<v1::WaitRequest> {
    let span = prost_types::Duration::try_from(span).expect("a short span");
    Request::new(v1::WaitRequest { span: Some(span) })
}

pub(crate) fn watch_request(messages: u32, interval: Duration) -> Request<v1::WatchRequest> {
    let interval = prost_types::Duration::try_from(interval).expect("a short span");
    Request::new(v1::WatchRequest { messages, interval: Some(interval) })
}

/// Runs a call in the background.
#[expect(clippy::disallowed_methods, reason = "a call of a test, which ends with the test's runtime")]
pub(crate) fn background<F>(call: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    tokio::spawn(call)
}

/// A connection without client logic: tonic's channel would enforce `grpc-timeout` itself.
#[derive(Clone)]
pub(crate) struct RawChannel {
    sender: hyper::client::conn::http2::SendRequest<tonic::body::Body>,
}

impl RawChannel {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        use hyper_util::rt::{TokioExecutor, TokioIo};
        let stream = tokio::net::TcpStream::connect(address).await.expect("the port is open");
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.expect("HTTP/2 is spoken");
        background(connection);
        Self { sender }
    }
}

impl tower::Service<http::Request<tonic::body::Body>> for RawChannel {
    type Response = http::Response<tonic::body::Body>;
    type Error = hyper::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://server{path}").parse().expect("a URI");
        let response = self.sender.send_request(request);
        Box::pin(async move { Ok(response.await?.map(tonic::body::Body::new)) })
    }
}
