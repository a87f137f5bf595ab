//! Retries: only of UNAVAILABLE, only of idempotent methods, within budget, deadline and the neighbor's pushback.

use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use onsale_kit::{client::ClientConfig, deadline::Deadline, error::DOMAIN};
use onsale_testkit::{echo::v1::FailRequest, wait_until};
use tokio::{io::AsyncReadExt, net::TcpListener, time::Instant};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::{
    neighbors::{Addresses, client, config, dead_address, echo, echo_once, fail_with, start},
    support::{TIMEOUT, assert_status, background},
};

#[tokio::test]
async fn idempotent_call_is_retried_after_unavailable() {
    let server = start("a", 51).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let response = client.fail(fail_with(Code::Unavailable, 2)).await.unwrap();
    assert_eq!(response.into_inner().calls, 3);
}

#[tokio::test]
async fn last_failure_is_returned_when_no_attempts_are_left() {
    let server = start("a", 52).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let request = FailRequest { message: "still down".to_owned(), ..fail_with(Code::Unavailable, 0) };
    let status = client.fail(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "still down"));
    assert_eq!(server.service().calls().fail.started(), 4);
}

#[tokio::test]
async fn other_codes_are_not_retried() {
    let server = start("a", 53).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let others = (1..=16).map(Code::from).filter(|code| *code != Code::Unavailable);
    let mut calls = 0;
    for code in others {
        assert_eq!(client.fail(fail_with(code, 0)).await.unwrap_err().code(), code);
        calls += 1;
        assert_eq!(server.service().calls().fail.started(), calls, "{code:?}");
    }
}

#[tokio::test]
async fn call_that_is_not_idempotent_is_never_retried() {
    let server = start("a", 54).await;
    server.service().fail_with(Some(Status::unavailable("down")));
    let mut client = client(&config(), &Addresses::of(&[&server]));
    assert_eq!(echo_once(&mut client).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.service().calls().echo_once.started(), 1);
    assert_eq!(echo(&mut client).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.service().calls().echo.started(), 4, "an idempotent one is");
}

#[tokio::test]
async fn retries_in_an_outage_stay_within_the_budget() {
    let server = start("a", 55).await;
    server.service().fail_with(Some(Status::unavailable("down")));
    let client = client(&config(), &Addresses::of(&[&server]));
    let calls: Vec<_> = (0..500)
        .map(|_| {
            let mut client = client.clone();
            background(async move { echo(&mut client).await.unwrap_err().code() })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Code::Unavailable);
    }
    let attempts = server.service().calls().echo.started();
    // 20 % of the calls plus a floor of 20, as in the settings.
    assert!(attempts <= 500 + 100 + 20, "{attempts} attempts");
    assert!(attempts >= 500 + 20, "the budget is there to be used: {attempts} attempts");
}

#[tokio::test]
async fn empty_budget_is_refilled_by_calls() {
    let server = start("a", 56).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    server.service().fail_with(Some(Status::unavailable("down")));
    let mut attempts = 0;
    loop {
        echo(&mut client).await.unwrap_err();
        let now = server.service().calls().echo.started();
        if now == attempts + 1 {
            break;
        }
        attempts = now;
    }
    server.service().fail_with(None);
    for _ in 0..20 {
        echo(&mut client).await.unwrap();
    }
    let response = client.fail(fail_with(Code::Unavailable, 1)).await.unwrap();
    assert_eq!(response.into_inner().calls, 2);
}

#[tokio::test]
async fn retry_uses_another_address() {
    let (bad, good) = (start("bad", 57).await, start("good", 58).await);
    bad.service().fail_with(Some(Status::unavailable("broken")));
    let mut client = client(&config(), &Addresses::of(&[&bad, &good]));
    for _ in 0..100 {
        assert_eq!(echo(&mut client).await.unwrap().instance, "good");
    }
    let wasted = bad.service().calls().echo.started();
    assert!(wasted <= 5, "it rests after a failure: {wasted} calls");
}

#[tokio::test]
async fn retry_waits_as_long_as_the_neighbor_asks() {
    let server = start("a", 59).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let wait = Duration::from_millis(300);
    let request =
        FailRequest { retry_delay: Some(wait.try_into().unwrap()), ..fail_with(Code::Unavailable, 1) };
    let begin = Instant::now();
    client.fail(request).await.unwrap();
    assert!(begin.elapsed() >= wait, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn wait_beyond_the_deadline_is_not_started() {
    let server = start("a", 60).await;
    let mut client = client(&config(), &Addresses::of(&[&server]));
    let wait = Duration::from_secs(60);
    let request =
        FailRequest { retry_delay: Some(wait.try_into().unwrap()), ..fail_with(Code::Unavailable, 1) };
    let begin = Instant::now();
    assert_eq!(client.fail(request).await.unwrap_err().code(), Code::Unavailable);
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
    assert_eq!(server.service().calls().fail.started(), 1);
}

#[tokio::test]
async fn draining_instance_does_not_delay_the_retry_elsewhere() {
    let (draining, other) = (start("draining", 61).await, start("other", 62).await);
    let mut client = client(&config(), &Addresses::of(&[&draining, &other]));
    wait_until("both are called", TIMEOUT, async || {
        echo(&mut client.clone()).await.unwrap();
        draining.service().calls().echo.started() > 0 && other.service().calls().echo.started() > 0
    })
    .await;
    let mut details = ErrorDetails::with_error_info("DRAINING", DOMAIN, []);
    details.set_retry_info(Some(Duration::from_secs(3)));
    let status = Status::with_error_details(Code::Unavailable, "stopping", details);
    draining.service().fail_with(Some(status));
    let begin = Instant::now();
    for _ in 0..50 {
        assert_eq!(echo(&mut client).await.unwrap().instance, "other");
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn attempts_end_with_the_deadline_of_the_call() {
    let addresses = Addresses::default();
    addresses.set(vec![dead_address(63).await]);
    let mut patient = config();
    patient.retry.backoff.attempts_max = 1_000_000;
    patient.retry.backoff.max = Duration::from_millis(50);
    patient.retry.budget_floor = 1_000_000;
    let mut client = client(&patient, &addresses);
    let begin = Instant::now();
    let status = Deadline::after(Duration::from_millis(400)).scope(echo(&mut client)).await.unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status:?}");
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

/// Accepts connections, reads the request and closes them.
async fn close_every_connection(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let mut buffer = [0; 64 * 1024];
        // Reads the preface, the settings and the request, and closes without a response.
        let mut read = 0;
        while read < 150 {
            match stream.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(bytes) => read += bytes,
            }
        }
    }
}

#[tokio::test]
async fn connection_that_breaks_during_a_call_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.64:0").await.unwrap();
    let addresses = Addresses::default();
    addresses.set(vec![listener.local_addr().unwrap()]);
    let _server = background(close_every_connection(listener));
    let mut client = client(&ClientConfig { deadline: Duration::from_secs(2), ..config() }, &addresses);
    assert_status(&echo_once(&mut client).await.unwrap_err(), Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    assert_status(&echo(&mut client).await.unwrap_err(), Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
}

#[test]
fn calls_and_retries_are_counted_by_method_and_final_code() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    // A recorder for this thread only, so that other tests are not counted.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let server = start("a", 65).await;
            let mut client = client(&config(), &Addresses::of(&[&server]));
            client.fail(fail_with(Code::Unavailable, 2)).await.unwrap();
            client.fail(fail_with(Code::NotFound, 0)).await.unwrap_err();
            echo(&mut client).await.unwrap();
            echo(&mut client).await.unwrap();
        });
    });
    let page = page.render();
    let count = |metric: &str, labels: &str| {
        let line = format!("{metric}{{service=\"onsale.testkit.v1.EchoService\",{labels}}} ");
        page.lines().find_map(|found| found.strip_prefix(&line)).map(str::to_owned)
    };
    let requests = "rpc_client_requests_total";
    assert_eq!(count(requests, "method=\"Echo\",code=\"OK\"").as_deref(), Some("2"), "{page}");
    assert_eq!(count(requests, "method=\"Fail\",code=\"OK\"").as_deref(), Some("1"), "{page}");
    assert_eq!(count(requests, "method=\"Fail\",code=\"NOT_FOUND\"").as_deref(), Some("1"), "{page}");
    assert_eq!(count(requests, "method=\"Fail\",code=\"UNAVAILABLE\""), None, "only the final code counts");
    assert_eq!(count("rpc_client_retries_total", "method=\"Fail\"").as_deref(), Some("2"), "{page}");
}
