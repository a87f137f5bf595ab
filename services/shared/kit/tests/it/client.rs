//! Channels to neighbors: addresses, connections, deadlines, and the metadata of a call.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use onsale_kit::{
    client::{ClientConfig, Neighbors},
    contract::Contract,
    deadline::Deadline,
    tasks::Tasks,
    telemetry::propagation::{CallContext, TraceContext},
};
use onsale_testkit::{
    echo::{
        self, EchoServer,
        v1::{WatchRequest, echo_service_client::EchoServiceClient},
    },
    tokens::TestIssuer,
    wait_until,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::Instant,
};
use tonic::Code;

use crate::{
    neighbors::{
        Addresses, Client, client, config, dead_address, echo, echo_once, neighbors, start, start_at,
        swallowing_address, wait_for,
    },
    support::{TIMEOUT, assert_status, background},
};

/// Relays one connection to `server`. Aborting it cuts the connection, as if a host died.
async fn relay(server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relayed = background(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(server).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    });
    (address, relayed)
}

/// Makes `calls` calls, which must all succeed, and returns how many each server answered.
async fn spread(client: &mut Client, calls: usize) -> BTreeMap<String, usize> {
    let mut answered = BTreeMap::new();
    for _ in 0..calls {
        *answered.entry(echo(client).await.unwrap().instance).or_default() += 1;
    }
    answered
}

#[tokio::test]
async fn name_is_resolved_and_called() {
    let server = start("a", 1).await;
    let target = format!("http://localhost:{}", server.address().port());
    let channel = neighbors().channel("echo", &ClientConfig { target, ..config() }).unwrap();
    assert_eq!(echo(&mut EchoServiceClient::new(channel)).await.unwrap().instance, "a");
}

#[tokio::test]
async fn calls_are_spread_over_all_addresses() {
    let servers = [start("a", 11).await, start("b", 12).await, start("c", 13).await];
    let mut client = client(&config(), &Addresses::of(&servers.each_ref()));
    // The first connected addresses get more calls until all three are connected.
    wait_until("all servers are called", TIMEOUT, async || spread(&mut client.clone(), 10).await.len() == 3)
        .await;
    let answered = spread(&mut client, 300).await;
    assert!(answered.values().all(|calls| *calls > 50), "{answered:?}");
}

#[tokio::test]
async fn less_busy_of_two_addresses_is_called() {
    let (first, second) = (start("first", 14).await, start("second", 15).await);
    let client = client(&config(), &Addresses::of(&[&first, &second]));
    wait_until("both are called", TIMEOUT, async || spread(&mut client.clone(), 10).await.len() == 2).await;
    let started = |server: &EchoServer| server.service().calls().wait.started();
    let mut waiting = Vec::new();
    for number in 1..=20 {
        let mut client = client.clone();
        waiting.push(background(async move { client.wait(wait_for(Duration::from_secs(60))).await }));
        let all_begun = async || started(&first) + started(&second) == number;
        wait_until("the call runs", TIMEOUT, all_begun).await;
    }
    assert_eq!((started(&first), started(&second)), (10, 10), "the less busy one is called");
    waiting.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn dead_address_fails_no_call_while_another_is_up() {
    let server = start("alive", 16).await;
    let addresses = Addresses::of(&[&server]);
    addresses.set(vec![dead_address(17).await, server.address(), dead_address(18).await]);
    let mut client = client(&config(), &addresses);
    // Not idempotent, so that no retry can hide a failure.
    for _ in 0..100 {
        assert_eq!(echo_once(&mut client).await.unwrap().instance, "alive");
    }
}

#[tokio::test]
async fn hanging_address_delays_no_call_while_another_is_up() {
    let server = start("alive", 19).await;
    let addresses = Addresses::default();
    let (swallowing, _queued, _listener) = swallowing_address().await;
    addresses.set(vec![swallowing, server.address()]);
    let config = ClientConfig { connect_timeout: TIMEOUT, ..config() };
    let mut client = client(&config, &addresses);
    let begin = Instant::now();
    for _ in 0..50 {
        assert_eq!(echo_once(&mut client).await.unwrap().instance, "alive");
    }
    assert!(begin.elapsed() < TIMEOUT / 2, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn stopping_server_fails_no_call_if_another_is_up() {
    let (first, second) = (start("first", 20).await, start("second", 21).await);
    let mut client = client(&config(), &Addresses::of(&[&first, &second]));
    wait_until("both are called", TIMEOUT, async || spread(&mut client.clone(), 10).await.len() == 2).await;
    let calls = background(async move {
        for _ in 0..500 {
            echo(&mut client).await.unwrap();
        }
        client
    });
    first.stop().await;
    let mut client = calls.await.unwrap();
    assert_eq!(spread(&mut client, 20).await, BTreeMap::from([("second".to_owned(), 20)]));
}

#[tokio::test]
async fn restarted_server_is_called_again() {
    let (first, second) = (start("first", 22).await, start("second", 23).await);
    let address = first.address();
    let mut client = client(&config(), &Addresses::of(&[&first, &second]));
    first.stop().await;
    assert_eq!(spread(&mut client, 20).await.len(), 1);
    let _back = start_at("back", address).await;
    wait_until("it is called again", TIMEOUT, async || {
        spread(&mut client.clone(), 10).await.contains_key("back")
    })
    .await;
}

#[tokio::test]
async fn address_changes_are_followed() {
    let (old, new) = (start("old", 24).await, start("new", 25).await);
    let addresses = Addresses::of(&[&old]);
    let mut client = client(&config(), &addresses);
    assert_eq!(echo(&mut client).await.unwrap().instance, "old");
    addresses.set(vec![new.address()]);
    wait_until("calls go to the new address", TIMEOUT, async || {
        echo(&mut client.clone()).await.unwrap().instance == "new"
    })
    .await;
    assert_eq!(spread(&mut client, 20).await, BTreeMap::from([("new".to_owned(), 20)]));
}

#[tokio::test]
async fn running_call_survives_the_removal_of_its_address() {
    let (old, new) = (start("old", 26).await, start("new", 27).await);
    let addresses = Addresses::of(&[&old]);
    let client = client(&config(), &addresses);
    let mut waiting = client.clone();
    let waiting = background(async move { waiting.wait(wait_for(Duration::from_millis(300))).await });
    let calls = &old.service().calls().wait;
    wait_until("the call runs", TIMEOUT, async || calls.started() == 1).await;
    addresses.set(vec![new.address()]);
    wait_until("calls go to the new address", TIMEOUT, async || {
        echo(&mut client.clone()).await.unwrap().instance == "new"
    })
    .await;
    waiting.await.unwrap().unwrap();
    assert_eq!(calls.finished(), 1);
}

#[tokio::test]
async fn failing_lookup_keeps_the_known_addresses() {
    let server = start("a", 28).await;
    let addresses = Addresses::of(&[&server]);
    let mut client = client(&config(), &addresses);
    echo(&mut client).await.unwrap();
    addresses.set(Vec::new());
    addresses.looked_up_again().await;
    echo(&mut client).await.unwrap();
}

#[tokio::test]
async fn channel_connects_when_its_server_starts_later() {
    let address = dead_address(29).await;
    let addresses = Addresses::default();
    let mut client = client(&config(), &addresses);
    let status = echo(&mut client).await.unwrap_err();
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    addresses.set(vec![address]);
    wait_until("the name is known", TIMEOUT, async || {
        let status = echo_once(&mut client.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        status.message().contains("failed to connect")
    })
    .await;
    let _server = start_at("late", address).await;
    wait_until("the call succeeds", TIMEOUT, async || echo(&mut client.clone()).await.is_ok()).await;
}

#[tokio::test]
async fn channel_connects_at_its_first_call() {
    let listener = TcpListener::bind("127.0.0.30:0").await.unwrap();
    let addresses = Addresses::default();
    addresses.set(vec![listener.local_addr().unwrap()]);
    let mut client = client(&ClientConfig { deadline: Duration::from_secs(1), ..config() }, &addresses);
    addresses.looked_up_again().await;
    let accepted = futures_util::FutureExt::now_or_never(listener.accept());
    assert!(accepted.is_none(), "somebody connected without a call");
    let call = background(async move { echo(&mut client).await });
    tokio::time::timeout(TIMEOUT, listener.accept()).await.unwrap().unwrap();
    // The server accepts the connection and never responds, so the deadline ends the call.
    assert_status(&call.await.unwrap().unwrap_err(), Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

fn timeout_seen(seen: &echo::v1::Seen) -> Duration {
    let text = &seen.headers["grpc-timeout"];
    let (amount, unit) = text.split_at(text.len() - 1);
    let amount: u64 = amount.parse().unwrap();
    match unit {
        "u" => Duration::from_micros(amount),
        "m" => Duration::from_millis(amount),
        other => panic!("unit {other}"),
    }
}

#[tokio::test]
async fn every_call_has_a_deadline() {
    let server = start("a", 31).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let timeout = timeout_seen(&echo(&mut client).await.unwrap());
    assert!(timeout <= config().deadline && timeout > config().deadline / 2, "{timeout:?}");
}

#[tokio::test]
async fn outgoing_call_has_the_running_calls_deadline_less_a_margin() {
    let server = start("a", 32).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    echo(&mut client).await.unwrap();
    let deadline = Deadline::after(Duration::from_secs(1));
    let first = timeout_seen(&deadline.scope(echo(&mut client)).await.unwrap());
    assert!(first <= Duration::from_millis(950), "{first:?}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let second = timeout_seen(&deadline.scope(echo(&mut client)).await.unwrap());
    assert!(second + Duration::from_millis(40) < first, "it shrinks: {first:?}, then {second:?}");
}

#[tokio::test]
async fn requested_timeout_can_only_shorten_the_deadline() {
    let server = start("a", 33).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    for (asked, at_most) in [(1, Duration::from_secs(1)), (1_000, config().deadline)] {
        let mut request = tonic::Request::new(echo::v1::EchoRequest::default());
        request.set_timeout(Duration::from_secs(asked));
        let seen = client.echo(request).await.unwrap().into_inner().seen.unwrap();
        assert!(timeout_seen(&seen) <= at_most);
    }
}

#[tokio::test]
async fn no_call_is_made_after_the_deadline() {
    let server = start("a", 34).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    for left in [Duration::ZERO, Duration::from_millis(4)] {
        let status = Deadline::after(left).scope(echo(&mut client)).await.unwrap_err();
        assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    }
    assert_eq!(server.service().calls().echo.started(), 0);
}

#[tokio::test]
async fn slow_call_ends_in_deadline_exceeded_and_is_cancelled_at_the_server() {
    let server = start("a", 35).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    echo(&mut client).await.unwrap();
    let begin = Instant::now();
    let call = client.wait(wait_for(Duration::from_secs(60)));
    let status = Deadline::after(Duration::from_millis(200)).scope(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
    let calls = &server.service().calls().wait;
    wait_until("the server sees the end", TIMEOUT, async || calls.cancelled() + calls.finished() == 1).await;
    assert_eq!(calls.finished(), 0);
}

#[tokio::test]
async fn stream_ends_at_its_deadline() {
    let server = start("a", 36).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let request =
        WatchRequest { messages: 0, interval: Some(prost_types::Duration { seconds: 0, nanos: 50_000_000 }) };
    let call = client.watch(request);
    let mut stream = Deadline::after(Duration::from_millis(500)).scope(call).await.unwrap().into_inner();
    let mut messages = 0;
    let status = loop {
        match stream.message().await {
            Ok(message) => messages += message.map_or_else(|| panic!("the stream has no end"), |_| 1),
            Err(status) => break status,
        }
    };
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
    assert!((1..=10).contains(&messages), "{messages}");
}

#[tokio::test]
async fn busy_stream_ends_at_its_deadline() {
    let server = start("a", 44).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let call = client.watch(WatchRequest { messages: 0, interval: None });
    let mut stream = Deadline::after(Duration::from_millis(500)).scope(call).await.unwrap().into_inner();
    let read = async {
        for number in 0_u64.. {
            if let Err(status) = stream.message().await {
                return status;
            }
            // Reads more slowly than the server sends, so that a message is always ready.
            if number.is_multiple_of(100) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        unreachable!("the stream has no end")
    };
    let status = tokio::time::timeout(TIMEOUT, read).await.expect("the stream ends");
    assert_status(&status, Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn endless_request_ends_at_the_deadline() {
    let server = start("a", 45).await;
    let config = ClientConfig { deadline: Duration::from_millis(200), ..config() };
    let resolver = Addresses::of(&[&server]).resolver();
    let mut channel = neighbors().channel_with("echo", &config, resolver).unwrap();
    let endless = futures_util::stream::pending::<Result<http_body::Frame<bytes::Bytes>, tonic::Status>>();
    let body = tonic::body::Body::new(http_body_util::StreamBody::new(endless));
    let request = http::Request::post("/onsale.testkit.v1.EchoService/Echo").body(body).unwrap();
    let call = tower::Service::call(&mut channel, request);
    let answer = tokio::time::timeout(TIMEOUT, call).await.expect("the call ends");
    assert_status(&answer.unwrap_err(), Code::DeadlineExceeded, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn zero_resolve_interval_still_pauses_between_lookups() {
    let addresses = Addresses::default();
    let config = ClientConfig { resolve_interval: Duration::ZERO, ..config() };
    let _client = client(&config, &addresses);
    let begin = Instant::now();
    for _ in 0..10 {
        addresses.looked_up_again().await;
    }
    assert!(begin.elapsed() >= Duration::from_millis(120), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn stream_outlives_the_deadline_of_calls() {
    let server = start("a", 37).await;
    let config = ClientConfig { deadline: Duration::from_millis(200), ..config() };
    let mut client = client(&config, &Addresses::of(&[&server]));
    let request = WatchRequest {
        messages: 5,
        interval: Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 }),
    };
    let mut stream = client.watch(request).await.unwrap().into_inner();
    let mut numbers = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        numbers.push(message.number);
    }
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn stream_whose_server_dies_ends_in_unavailable() {
    let server = start("a", 38).await;
    let (address, connections) = relay(server.address()).await;
    let addresses = Addresses::default();
    addresses.set(vec![address]);
    let mut client = client(&config(), &addresses);
    let interval = Some(prost_types::Duration { seconds: 0, nanos: 20_000_000 });
    let mut stream = client.watch(WatchRequest { messages: 0, interval }).await.unwrap().into_inner();
    stream.message().await.unwrap().unwrap();
    connections.abort();
    let status = loop {
        if let Err(status) = stream.message().await.map(|message| message.expect("the stream has no end")) {
            break status;
        }
    };
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
}

#[tokio::test]
async fn call_carries_the_service_token_unless_it_has_its_own() {
    let server = start("a", 39).await;
    let issuer = TestIssuer::new();
    let contract = Contract::load(&[echo::DESCRIPTORS]).unwrap();
    let tokens = Arc::new(issuer.service_tokens("claim"));
    let neighbors = Neighbors::new(&contract, Some(Arc::clone(&tokens)), Tasks::new());
    let channel = neighbors.channel_with("echo", &config(), Addresses::of(&[&server]).resolver()).unwrap();
    let mut client = EchoServiceClient::new(channel);
    let seen = echo(&mut client).await.unwrap();
    assert_eq!(seen.headers["authorization"], tokens.bearer().to_str().unwrap());
    assert!(seen.headers["user-agent"].starts_with("onsale-kit/"));
    let mut request = tonic::Request::new(echo::v1::EchoRequest::default());
    request.metadata_mut().insert("authorization", "Bearer own".parse().unwrap());
    let seen = client.echo(request).await.unwrap().into_inner().seen.unwrap();
    assert_eq!(seen.headers["authorization"], "Bearer own");
}

#[tokio::test]
async fn oversized_request_is_not_sent() {
    let server = start("a", 40).await;
    let config = ClientConfig { request_bytes_max: 1_000, ..config() };
    let mut client = client(&config, &Addresses::of(&[&server]));
    let status = client.echo(echo::v1::EchoRequest { text: "x".repeat(2_000) }).await.unwrap_err();
    assert_status(&status, Code::InvalidArgument, "REQUEST_TOO_LARGE");
    assert_eq!(server.service().calls().echo.started(), 0);
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_the_server() {
    let server = start("a", 41).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let calls = &server.service().calls().wait;
    let call = background(async move { client.wait(wait_for(Duration::from_secs(60))).await });
    wait_until("the call runs", TIMEOUT, async || calls.started() == 1).await;
    call.abort();
    wait_until("the server sees it", TIMEOUT, async || calls.cancelled() == 1).await;
}

#[tokio::test]
async fn channel_tasks_end_with_the_task_set() {
    let server = start("a", 42).await;
    let contract = Contract::load(&[echo::DESCRIPTORS]).unwrap();
    let tasks = Tasks::new();
    let neighbors = Neighbors::new(&contract, None, tasks.clone());
    let channel = neighbors.channel_with("echo", &config(), Addresses::of(&[&server]).resolver()).unwrap();
    let mut client = EchoServiceClient::new(channel);
    echo(&mut client).await.unwrap();
    assert!(tasks.shutdown(TIMEOUT).await.is_empty());
    // The last calls of a draining service still succeed.
    echo(&mut client).await.unwrap();
}

#[tokio::test]
async fn call_carries_the_running_calls_trace() {
    let server = start("a", 43).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let call = CallContext { trace: TraceContext::root(), name: "test" };
    let seen = call.scope(echo(&mut client)).await.unwrap();
    let trace_id = call.trace.trace_id().to_string();
    assert!(seen.headers["traceparent"].contains(&trace_id), "{:?}", seen.headers);
    assert!(!echo(&mut client).await.unwrap().headers.contains_key("traceparent"), "outside of a call");
}
