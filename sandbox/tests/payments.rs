//! Tests of the sandbox payment provider over real HTTP, as merchant, customer and tester.

// Marks the helpers as test code for clippy, so that they may panic.
#![cfg(test)]

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, http::StatusCode, routing::post};
use onsale_kit::{backoff::BackoffConfig, tasks::Tasks};
use onsale_sandbox::payments::{Behaviour, Config, Provider};
use onsale_testkit::wait_until;
use onsale_types::{Clock, ManualClock, SystemClock};
use ring::hmac;
use serde_json::Value;

const KEY: &str = "sk_test_merchant";
const SECRET: &str = "whsec_test";
const TIMEOUT: Duration = Duration::from_secs(10);

fn config(data_file: Option<&Path>) -> Config {
    let webhook_retry = BackoffConfig {
        initial: Duration::from_millis(20),
        max: Duration::from_millis(100),
        multiplier: 2,
        attempts_max: 1_000,
    };
    Config { data_file: data_file.map(Path::to_owned), webhook_retry, ..Config::new(KEY, SECRET) }
}

async fn start() -> Provider {
    Provider::start(config(None)).await.unwrap()
}

/// A merchant that calls the provider and receives webhooks.
struct Merchant {
    http: reqwest::Client,
    received: Arc<Mutex<Vec<Value>>>,
    /// Response status to webhooks.
    status: Arc<Mutex<StatusCode>>,
    /// Number of webhooks that received an error status.
    refused_count: Arc<Mutex<u32>>,
    address: SocketAddr,
    _tasks: Tasks,
}

type Receiver = (Arc<Mutex<Vec<Value>>>, Arc<Mutex<StatusCode>>, Arc<Mutex<u32>>);

async fn receive_webhook(
    State((received, status, refused_count)): State<Receiver>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let header = headers["stripe-signature"].to_str().unwrap();
    let (time, signature) = header.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let expected = hmac::sign(&key, &[time.as_bytes(), b".", &body].concat());
    let expected: String = expected.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(signature, expected, "every webhook is signed");
    let status = *status.lock().unwrap();
    if !status.is_success() {
        *refused_count.lock().unwrap() += 1;
    } else {
        received.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    }
    status
}

impl Merchant {
    async fn new() -> Self {
        onsale_kit::tls::install_provider();
        let received = Arc::new(Mutex::new(Vec::new()));
        let status = Arc::new(Mutex::new(StatusCode::OK));
        let refused_count = Arc::new(Mutex::new(0));
        let receiver = (received.clone(), status.clone(), refused_count.clone());
        let router = Router::new().route("/webhooks", post(receive_webhook)).with_state(receiver);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        tasks.spawn("merchant", async move { axum::serve(listener, router).await.unwrap() });
        Self { http: reqwest::Client::new(), received, status, refused_count, address, _tasks: tasks }
    }

    fn webhook_url(&self) -> Option<String> {
        Some(format!("http://{}/webhooks", self.address))
    }

    async fn post(&self, url: &str, key: Option<&str>, form: &[(&str, &str)]) -> (u16, Value) {
        let mut request = self.http.post(url).bearer_auth(KEY).form(form);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn get(&self, url: &str) -> Value {
        self.http.get(url).bearer_auth(KEY).send().await.unwrap().json().await.unwrap()
    }

    async fn open_session(&self, provider: &Provider, key: &str) -> Value {
        let (status, session) = self.post(&sessions(provider), Some(key), &form()).await;
        assert_eq!(status, 200, "{session}");
        session
    }

    async fn press_button(&self, session: &Value, button: &str) -> u16 {
        let url = format!("{}/{button}", session["url"].as_str().unwrap());
        let response = self.http.post(url).header("accept", "application/json").send().await.unwrap();
        response.status().as_u16()
    }

    fn event_types(&self) -> Vec<String> {
        let received = self.received.lock().unwrap();
        received.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    }

    async fn wait_for_webhooks(&self, count: usize) {
        wait_until("webhooks arrive", TIMEOUT, || async { self.received.lock().unwrap().len() >= count })
            .await;
    }
}

fn sessions(provider: &Provider) -> String {
    format!("{}/v1/checkout/sessions", provider.url())
}

fn form() -> [(&'static str, &'static str); 8] {
    [
        ("mode", "payment"),
        ("line_items[0][quantity]", "2"),
        ("line_items[0][price_data][currency]", "eur"),
        ("line_items[0][price_data][unit_amount]", "2000"),
        ("line_items[0][price_data][product_data][name]", "Derby <b>"),
        ("success_url", "https://shop.test/done?session={CHECKOUT_SESSION_ID}"),
        ("metadata[payment_id]", "0190"),
        ("payment_intent_data[metadata][payment_id]", "0190"),
    ]
}

#[tokio::test]
async fn session_is_paid_once_and_the_merchant_receives_webhooks() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    provider.set_webhook_url(merchant.webhook_url());
    let session = merchant.open_session(&provider, "one").await;
    assert_eq!(session["amount_total"], 4_000);
    assert_eq!(session["status"], "open");
    assert_eq!(session["payment_intent"], Value::Null);
    assert_eq!(merchant.press_button(&session, "pay").await, 200);
    assert_eq!(merchant.press_button(&session, "pay").await, 200, "a repeated payment changes nothing");
    assert_eq!(merchant.press_button(&session, "decline").await, 409);
    merchant.wait_for_webhooks(2).await;
    let mut types = merchant.event_types();
    types.sort();
    assert_eq!(types, ["checkout.session.completed", "payment_intent.succeeded"]);
    let url = format!("{}/{}", sessions(&provider), session["id"].as_str().unwrap());
    let paid = merchant.get(&format!("{url}?expand%5B%5D=payment_intent")).await;
    assert_eq!(paid["payment_status"], "paid");
    assert_eq!(paid["payment_intent"]["status"], "succeeded");
    assert_eq!(paid["payment_intent"]["metadata"]["payment_id"], "0190");
    provider.stop().await;
}

#[tokio::test]
async fn idempotency_key_replays_its_response_and_refuses_other_parameters() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    let (first, second) =
        tokio::join!(merchant.open_session(&provider, "one"), merchant.open_session(&provider, "one"));
    assert_eq!(first, second, "concurrent calls with one key open one session");
    assert_eq!(merchant.open_session(&provider, "one").await, first);
    assert_ne!(merchant.open_session(&provider, "two").await["id"], first["id"]);
    let mut other = form();
    other[3].1 = "2001";
    let (status, refused) = merchant.post(&sessions(&provider), Some("one"), &other).await;
    assert_eq!((status, refused["error"]["type"].as_str()), (400, Some("idempotency_error")));
    assert_eq!(provider.session_count(), 2);
    let unknown = merchant.http.post(sessions(&provider)).bearer_auth("sk_wrong").form(&form()).send().await;
    assert_eq!(unknown.unwrap().status().as_u16(), 401);
    provider.stop().await;
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    for (index, value) in [(0, "setup"), (1, "0"), (2, "xts"), (3, "-5"), (4, ""), (5, "")] {
        let mut bad = form();
        bad[index].1 = value;
        let (status, response) = merchant.post(&sessions(&provider), None, &bad).await;
        assert_eq!((status, response["error"]["type"].as_str()), (400, Some("invalid_request_error")));
    }
    let soon = SystemClock.now().to_seconds_and_nanos().0 + 60;
    let soon = soon.to_string();
    let form: Vec<_> = form().into_iter().chain([("expires_at", soon.as_str())]).collect();
    assert_eq!(
        merchant.post(&sessions(&provider), None, &form).await.0,
        400,
        "a session lasts at least 30 minutes"
    );
    provider.stop().await;
}

#[tokio::test]
async fn declined_and_canceled_sessions_end_unpaid() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    provider.set_webhook_url(merchant.webhook_url());
    for (key, button, status, intent, kind) in [
        ("one", "decline", "complete", "requires_payment_method", "checkout.session.async_payment_failed"),
        ("two", "cancel", "expired", "canceled", "payment_intent.canceled"),
    ] {
        let session = merchant.open_session(&provider, key).await;
        assert_eq!(merchant.press_button(&session, button).await, 200);
        let url = format!("{}/{}", sessions(&provider), session["id"].as_str().unwrap());
        let ended = merchant.get(&format!("{url}?expand%5B%5D=payment_intent")).await;
        assert_eq!(ended["status"], status);
        assert_eq!(ended["payment_status"], "unpaid");
        assert_eq!(ended["payment_intent"]["status"], intent);
        wait_until(kind, TIMEOUT, || async { merchant.event_types().contains(&kind.to_owned()) }).await;
    }
    provider.stop().await;
}

#[tokio::test]
async fn session_expires_by_time_or_by_the_merchant() {
    let clock = ManualClock::new(SystemClock.now());
    let timed = Config { clock: Arc::new(clock.clone()), ..config(None) };
    let (provider, merchant) = (Provider::start(timed).await.unwrap(), Merchant::new().await);
    let left = merchant.open_session(&provider, "left").await;
    let ended = merchant.open_session(&provider, "ended").await;
    let url = format!("{}/{}/expire", sessions(&provider), ended["id"].as_str().unwrap());
    assert_eq!(merchant.post(&url, None, &[]).await.1["status"], "expired");
    clock.advance(Duration::from_secs(25 * 60 * 60));
    assert_eq!(merchant.press_button(&left, "pay").await, 409);
    provider.stop().await;
}

#[tokio::test]
async fn payment_is_refunded_once() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    let session = merchant.open_session(&provider, "one").await;
    merchant.press_button(&session, "pay").await;
    let url = format!("{}/{}", sessions(&provider), session["id"].as_str().unwrap());
    let intent = merchant.get(&url).await["payment_intent"].as_str().unwrap().to_owned();
    let refunds = format!("{}/v1/refunds", provider.url());
    let form = [("payment_intent", intent.as_str())];
    let (status, refund) = merchant.post(&refunds, Some("refund"), &form).await;
    assert_eq!((status, refund["amount"].as_i64()), (200, Some(4_000)));
    assert_eq!(merchant.post(&refunds, Some("refund"), &form).await.1, refund);
    let (status, again) = merchant.post(&refunds, Some("another"), &form).await;
    assert_eq!((status, again["error"]["code"].as_str()), (400, Some("charge_already_refunded")));
    assert_eq!(provider.refund_count(), 1);
    let read = merchant.get(&format!("{refunds}/{}", refund["id"].as_str().unwrap())).await;
    assert_eq!(read, refund);
    provider.stop().await;
}

#[tokio::test]
async fn restart_keeps_sessions_responses_and_undelivered_webhooks() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("payments.jsonl");
    let merchant = Merchant::new().await;
    let provider = Provider::start(config(Some(&journal))).await.unwrap();
    let session = merchant.open_session(&provider, "one").await;
    merchant.press_button(&session, "pay").await;
    assert_eq!(provider.webhooks_waiting(), 2);
    let opened_at = provider.url();
    provider.stop().await;

    // A partial line, as left by a process that dies while it writes.
    let mut text = std::fs::read_to_string(&journal).unwrap();
    text.push_str(r#"[{"session":{"id":"#);
    std::fs::write(&journal, text).unwrap();

    let listening = Config { webhook_url: merchant.webhook_url(), ..config(Some(&journal)) };
    let provider = Provider::start(listening).await.unwrap();
    merchant.wait_for_webhooks(2).await;
    assert_eq!(merchant.open_session(&provider, "one").await["id"], session["id"]);
    let url = format!("{}/{}", sessions(&provider), session["id"].as_str().unwrap());
    assert_eq!(merchant.get(&url).await["payment_status"], "paid");
    assert_ne!(provider.url(), opened_at, "the restarted provider has another port");
    wait_until("both webhooks are delivered", TIMEOUT, || async { provider.webhooks_waiting() == 0 }).await;
    provider.stop().await;
    let provider = Provider::start(config(Some(&journal))).await.unwrap();
    assert_eq!(provider.webhooks_waiting(), 0, "delivered webhooks are not sent again");
    provider.stop().await;
}

#[tokio::test]
async fn webhook_is_retried_until_accepted_and_can_be_duplicated_or_dropped() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    *merchant.status.lock().unwrap() = StatusCode::SERVICE_UNAVAILABLE;
    provider.set_webhook_url(merchant.webhook_url());
    provider.set_behaviour(Behaviour { duplicate_webhooks: 1, ..Behaviour::default() });
    let session = merchant.open_session(&provider, "one").await;
    merchant.press_button(&session, "cancel").await;
    wait_until("a delivery was attempted", TIMEOUT, || async { *merchant.refused_count.lock().unwrap() > 1 })
        .await;
    assert_eq!(provider.webhooks_waiting(), 1);
    *merchant.status.lock().unwrap() = StatusCode::OK;
    merchant.wait_for_webhooks(2).await;
    let received = merchant.received.lock().unwrap().clone();
    assert_eq!(received[0]["id"], received[1]["id"], "the duplicate has the same event id");

    provider.set_behaviour(Behaviour { drop_webhooks: 1, ..Behaviour::default() });
    let session = merchant.open_session(&provider, "two").await;
    merchant.press_button(&session, "cancel").await;
    assert_eq!(provider.webhooks_waiting(), 0);
    provider.stop().await;
}

#[tokio::test]
async fn events_of_one_change_can_be_sent_in_reverse_order() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    provider.set_webhook_url(merchant.webhook_url());
    provider.set_behaviour(Behaviour { reorder_webhooks: true, ..Behaviour::default() });
    let session = merchant.open_session(&provider, "one").await;
    merchant.press_button(&session, "pay").await;
    merchant.wait_for_webhooks(2).await;
    assert_eq!(merchant.event_types(), ["checkout.session.completed", "payment_intent.succeeded"]);
    provider.stop().await;
}

#[tokio::test]
async fn injected_faults_reject_calls_and_lose_responses() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    let behaviour = serde_json::json!({ "fail_calls": 1, "lose_answers": 1 });
    let url = format!("{}/sandbox/behaviour", provider.url());
    let set = merchant.http.post(&url).json(&behaviour).send().await.unwrap();
    assert!(set.status().is_success());
    assert_eq!(merchant.post(&sessions(&provider), Some("one"), &form()).await.0, 503);
    assert_eq!(provider.session_count(), 0, "a failed call does nothing");
    assert_eq!(merchant.post(&sessions(&provider), Some("one"), &form()).await.0, 500);
    assert_eq!(provider.session_count(), 1, "only the response was lost");
    merchant.open_session(&provider, "one").await;
    assert_eq!(provider.session_count(), 1);
    provider.stop().await;
}

#[tokio::test]
async fn checkout_page_shows_the_amount_and_redirects_to_the_merchant() {
    let (provider, merchant) = (start().await, Merchant::new().await);
    let session = merchant.open_session(&provider, "one").await;
    let page = session["url"].as_str().unwrap();
    let html = merchant.http.get(page).send().await.unwrap().text().await.unwrap();
    assert!(html.contains("EUR 40.00") && html.contains("Derby") && !html.contains("<b>"), "{html}");
    assert!(html.contains("/pay\"") && html.contains("/decline\"") && html.contains("/cancel\""), "{html}");
    let stays = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let response = stays.post(format!("{page}/pay")).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 303);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(location, format!("https://shop.test/done?session={}", session["id"].as_str().unwrap()));
    let html = merchant.http.get(page).send().await.unwrap().text().await.unwrap();
    assert!(html.contains("<h1>Paid</h1>") && !html.contains("<button>"), "{html}");
    provider.stop().await;
}
