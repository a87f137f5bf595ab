//! A whole process: settings, signals, exit codes, log and traces. The process is this test binary, started with the filter
//! of one "test" that is a service.

use std::{
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use onsale_kit::config::NoConfig;
use onsale_testkit::{
    echo::{
        self, EchoService,
        v1::{echo_service_client::EchoServiceClient, echo_service_server::EchoServiceServer},
    },
    tokens::TestIssuer,
    wait_until,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
    trace_service_server::{TraceService, TraceServiceServer},
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, metadata::MetadataValue, transport::Endpoint};

use crate::support::{
    Bearer, Client, Probe, TIMEOUT, background, echo_request, http_get, wait_request, watch_request,
};

const CHILD: &str = "ONSALE_TEST_CHILD";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Not a test but the service that the tests below start. Does nothing in a normal run.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let environment = onsale_kit::config::Environment::of_process();
    let exit = onsale_kit::run_in("echo", "", &environment, async |_: NoConfig, chassis| {
        chassis.add_descriptors(echo::DESCRIPTORS);
        chassis.add_service(EchoServiceServer::new(Probe { echo: EchoService::new("child") }));
        Ok(())
    });
    std::process::exit(exit.code().into());
}

/// A running service process.
struct Service {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Service {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::of(command(settings))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the test binary can be started");
        let output = child.stdout.take().expect("its output is a pipe");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().expect("no panic").push(line);
            }
        });
        Self { child, log }
    }

    /// Waits for the first log line that contains all of `parts`.
    async fn line(&self, parts: &[&str]) -> String {
        let find = || {
            let log = self.log.lock().expect("no panic");
            log.iter().find(|line| parts.iter().all(|part| line.contains(part))).cloned()
        };
        wait_until(&format!("a log line with {parts:?}"), TIMEOUT, || async { find().is_some() }).await;
        find().unwrap_or_default()
    }

    /// Returns the addresses of the gRPC port and of the operators' port.
    async fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let line = self.line(&["\"serving\""]).await;
        let line: serde_json::Value = serde_json::from_str(&line).expect("a log line is JSON");
        let address = |key: &str| line[key].as_str().expect("an address").parse().expect("an address");
        (address("address"), address("admin_address"))
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(status.expect("kill can be run").success());
    }

    /// Waits for the process to end and returns its exit code.
    async fn exit_code(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                return status.code();
            }
            assert!(begin.elapsed() < 2 * TIMEOUT, "the process does not end: {:?}", self.log);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Has no effect after a test that passed, because the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command.args(["--exact", "process::child", "--nocapture"]).env(CHILD, "1");
    command.envs(settings.iter().map(|(key, value)| (format!("ONSALE__{key}"), *value)));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(issuer: &TestIssuer, settings: &[(&str, &str)]) -> Service {
    Service::of(good_command(issuer, settings))
}

fn good_command(issuer: &TestIssuer, settings: &[(&str, &str)]) -> Command {
    let (key, jwks) = (issuer.mesh_key(), issuer.mesh_jwks());
    let mut all = vec![
        ("SERVER__LISTEN", "127.0.0.1:0"),
        ("SERVER__ADMIN_LISTEN", "127.0.0.1:0"),
        ("SERVER__DRAIN__LAME_DUCK", "0s"),
        ("AUTH__MESH__KEY", key.as_str()),
        ("AUTH__MESH__JWKS", jwks.as_str()),
    ];
    all.extend(settings);
    command(&all)
}

async fn client(issuer: &TestIssuer, address: SocketAddr) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URI");
    let channel = endpoint.connect().await.expect("the service accepts connections");
    let token = issuer.token(onsale_proto::auth::v1::Role::Service);
    EchoServiceClient::with_interceptor(channel, Bearer::new(Some(&token)))
}

#[tokio::test]
async fn sigterm_lets_calls_finish_and_exits_with_0() {
    for signal in ["-TERM", "-INT"] {
        let issuer = TestIssuer::new();
        let mut service = start(&issuer, &[]);
        let (address, admin) = service.addresses().await;
        let mut client = client(&issuer, address).await;
        let mut stream = client
            .watch(watch_request(0, Duration::from_secs(60)))
            .await
            .expect("the stream opens")
            .into_inner();
        stream.message().await.expect("the first message");
        let mut slow = client.clone();
        let call = background(async move { slow.wait(wait_request(Duration::from_millis(300))).await });
        wait_until("the call runs", TIMEOUT, || async {
            http_get(admin, "/metrics").await.1.contains("rpc_server_requests_in_flight 1")
        })
        .await;
        service.signal(signal);
        let status = stream.message().await.expect_err("the stream ends");
        crate::support::assert_status(&status, tonic::Code::Unavailable, "DRAINING");
        call.await.expect("no panic").expect("the call finishes");
        assert_eq!(service.exit_code().await, Some(0));
    }
}

#[tokio::test]
async fn cut_drain_exits_with_75() {
    let issuer = TestIssuer::new();
    let mut service = start(&issuer, &[("SERVER__DRAIN__TOTAL", "300ms")]);
    let (address, admin) = service.addresses().await;
    let mut client = client(&issuer, address).await;
    let call = background(async move { client.wait(wait_request(Duration::from_secs(3600))).await });
    wait_until("the call runs", TIMEOUT, || async {
        http_get(admin, "/metrics").await.1.contains("rpc_server_requests_in_flight 1")
    })
    .await;
    service.signal("-TERM");
    assert_eq!(service.exit_code().await, Some(75));
    call.await.expect("no panic").expect_err("the call was cut");
}

#[tokio::test]
async fn second_signal_exits_immediately() {
    let issuer = TestIssuer::new();
    let mut service = start(&issuer, &[("SERVER__DRAIN__LAME_DUCK", "20s")]);
    service.addresses().await;
    service.signal("-TERM");
    service.line(&["\"draining\""]).await;
    let begin = Instant::now();
    service.signal("-INT");
    assert_eq!(service.exit_code().await, Some(130));
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn bad_settings_exit_with_64_before_a_port_opens() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let settings = [
        ("SERVER__LISTEN", address.as_str()),
        ("SERVER__LISTN", "x"),
        ("AUTH__MESH__KEY", "c2VjcmV0LXNlY3JldA=="),
        ("AUTH__MESH__JWKS", "{}"),
    ];
    let mut service = Service::start(&settings);
    assert_eq!(service.exit_code().await, Some(64));
    let mut message = String::new();
    let mut stderr = service.child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut message).expect("text");
    assert!(message.contains("server.listn: unknown key"), "{message}");
    assert!(message.contains("auth.mesh.key"), "{message}");
    assert!(!message.contains("c2VjcmV0"), "{message}");
    assert!(service.log.lock().expect("no panic").iter().all(|line| !line.contains("serving")));
}

#[tokio::test]
async fn environment_variable_that_is_not_unicode_is_ignored() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let mut command = good_command(&TestIssuer::new(), &[]);
    command.env("NOT_OURS", OsStr::from_bytes(b"\xff\xfe"));
    let mut service = Service::of(command);
    service.addresses().await;
    service.signal("-TERM");
    assert_eq!(service.exit_code().await, Some(0));
}

#[tokio::test]
async fn taken_port_exits_with_70() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let mut service = start(&TestIssuer::new(), &[("SERVER__LISTEN", &address)]);
    assert_eq!(service.exit_code().await, Some(70));
}

#[tokio::test]
async fn log_lines_of_a_call_carry_trace_method_and_cause() {
    let issuer = TestIssuer::new();
    let mut service = start(&issuer, &[]);
    let (address, _) = service.addresses().await;
    let mut client = client(&issuer, address).await;
    let mut request = echo_request("log");
    request.metadata_mut().insert("traceparent", MetadataValue::from_static(PARENT));
    client.echo(request).await.expect("the call succeeds");
    let line = service.line(&["requested by the test"]).await;
    let line: serde_json::Value = serde_json::from_str(&line).expect("a log line is JSON");
    assert_eq!(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(line["call"], "/onsale.testkit.v1.EchoService/Echo");
    assert_eq!(line["answer"], 42);

    // The log has the cause, under a trace id that the caller knows; the caller's status does not.
    for (text, cause) in [
        ("internal", "failed to save hold 17 in the table secrets: disk full"),
        ("bare internal", "password=hunter2"),
        ("panic", "requested by the test"),
    ] {
        let trace_id = format!("{:032x}", 1_000 + text.len());
        let mut request = echo_request(text);
        let traceparent = format!("00-{trace_id}-b7ad6b7169203331-01");
        request.metadata_mut().insert("traceparent", traceparent.parse().expect("ASCII"));
        client.echo(request).await.expect_err("requested by the test");
        service.line(&["ERROR", cause, &trace_id]).await;
    }
    service.signal("-TERM");
    assert_eq!(service.exit_code().await, Some(0));
}

/// Stores the received spans.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.received.lock().expect("no panic").push(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse { partial_success: None }))
    }
}

#[tokio::test]
async fn spans_join_the_callers_trace_and_are_flushed_at_exit() {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
    let served = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(collector.clone()))
        .serve_with_incoming(TcpListenerStream::new(listener));
    let served = background(served);

    let issuer = TestIssuer::new();
    let mut service = start(&issuer, &[("TELEMETRY__OTLP_ENDPOINT", &endpoint)]);
    let (address, _) = service.addresses().await;
    let mut client = client(&issuer, address).await;
    let mut request = echo_request("traceparent");
    request.metadata_mut().insert("traceparent", MetadataValue::from_static(PARENT));
    let own = client.echo(request).await.expect("the call succeeds").into_inner().text;
    // Stopped immediately: buffered spans must still arrive.
    service.signal("-TERM");
    assert_eq!(service.exit_code().await, Some(0));
    served.abort();

    let received = collector.received.lock().expect("no panic");
    let spans: Vec<_> = received
        .iter()
        .flat_map(|request| &request.resource_spans)
        .flat_map(|resource| &resource.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    let span = spans.iter().find(|span| span.name == "/onsale.testkit.v1.EchoService/Echo");
    let span = span.unwrap_or_else(|| panic!("no span of the call in {spans:?}"));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(
        own,
        format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)),
        "what went out is this span"
    );
}
