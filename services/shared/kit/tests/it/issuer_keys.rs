//! Issuers that publish their keys at a URL: keys are fetched, replaced, and kept while the issuer is unavailable.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onsale_kit::{
    auth::{KeyFetchConfig, SigningKey, TokenFields, TokenSigner},
    config::Text,
    server::{Chassis, RunningServer},
    tasks::Tasks,
};
use onsale_testkit::{
    call,
    echo::{self, EchoService},
    tokens::{AUDIENCE, ISSUER, TestIssuer},
    wait_until,
};
use onsale_types::{Clock, SystemClock};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};

use crate::support::{TIMEOUT, assert_status, config, retry_delay};

const METHOD: &str = "/onsale.testkit.v1.EchoService/CallAsCustomer";

/// The issuer's response at its URL.
#[derive(Clone)]
struct Published {
    document: Arc<Mutex<String>>,
    fetches: Arc<AtomicUsize>,
    address: SocketAddr,
    tasks: Tasks,
}

impl Published {
    /// Starts an issuer that returns `document` to every request.
    async fn start(document: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let published = Self {
            document: Arc::new(Mutex::new(document)),
            fetches: Arc::default(),
            address: listener.local_addr().expect("an address"),
            tasks: Tasks::new(),
        };
        let (server, token) = (published.clone(), published.tasks.token());
        published.tasks.spawn("issuer", async move {
            while let Some(Ok((stream, _))) = token.run_until_cancelled(listener.accept()).await {
                server.answer(stream).await;
            }
        });
        published
    }

    async fn answer(&self, mut stream: tokio::net::TcpStream) {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let document = self.document.lock().expect("no test panics in here").clone();
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", document.len());
        let _ = stream.write_all(format!("{head}{document}").as_bytes()).await;
    }

    fn publish(&self, document: String) {
        *self.document.lock().expect("no test panics in here") = document;
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    fn url(&self) -> String {
        format!("http://{}/jwks.json", self.address)
    }
}

fn signer() -> TokenSigner {
    let key = SigningKey::generate().expect("randomness");
    TokenSigner::new(SigningKey::parse(&key).expect("a key just made"), ISSUER)
}

fn token(signer: &TokenSigner) -> String {
    let expiry = SystemClock.now().checked_add(Duration::from_secs(60)).expect("a minute is no eternity");
    let facts = TokenFields { audience: AUDIENCE, subject: "somebody", expiry };
    signer.sign(&facts, &json!({ "roles": ["CUSTOMER"] })).expect("claims are an object")
}

/// Starts a server that trusts the keys published at `url`.
async fn server(url: &str, change: impl FnOnce(&mut KeyFetchConfig)) -> (RunningServer, Channel) {
    let test_issuer = TestIssuer::new();
    let mut config = config(&test_issuer, &[]);
    for issuer in &mut config.auth.issuers {
        issuer.jwks = Text::default();
        issuer.jwks_url = Some(url.to_owned());
    }
    change(&mut config.auth.key_fetch);
    let mut chassis = Chassis::new("echo", config, Arc::new(SystemClock)).expect("good settings");
    chassis.add_descriptors(echo::DESCRIPTORS).add_service(EchoService::new("echo").into_server());
    let server = chassis.start().await.expect("the server starts, issuer or not");
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).expect("a URI");
    let channel = endpoint.connect().await.expect("the server accepts connections");
    (server, channel)
}

async fn call_with(channel: &Channel, token: &str) -> Result<(), Status> {
    call(channel, METHOD, Some(token)).await
}

#[tokio::test]
async fn token_is_accepted_once_the_keys_are_fetched() {
    let signer = signer();
    let issuer = Published::start(signer.jwks()).await;
    let (server, channel) = server(&issuer.url(), |_| {}).await;
    // The first call waits for the keys instead of being refused.
    call_with(&channel, &token(&signer)).await.expect("a good token");
    let stranger = self::signer();
    let status = call_with(&channel, &token(&stranger)).await.expect_err("another key");
    assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn new_key_is_fetched_on_demand_and_a_removed_one_is_refused() {
    let (old, new) = (signer(), signer());
    let issuer = Published::start(old.jwks()).await;
    let (server, channel) = server(&issuer.url(), |_| {}).await;
    let old_token = token(&old);
    call_with(&channel, &old_token).await.expect("a good token");
    issuer.publish(new.jwks());
    // Within `interval_min`, a call with an unknown key is refused immediately.
    wait_until("the new key is accepted", TIMEOUT, || async {
        call_with(&channel, &token(&new)).await.is_ok()
    })
    .await;
    // Also the token that was verified and cached before.
    let status = call_with(&channel, &old_token).await.expect_err("its key was taken back");
    assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn keys_are_fetched_at_intervals() {
    let (old, new) = (signer(), signer());
    let issuer = Published::start(old.jwks()).await;
    let (server, channel) = server(&issuer.url(), |fetch| fetch.interval = Duration::from_millis(100)).await;
    call_with(&channel, &token(&old)).await.expect("a good token");
    issuer.publish(new.jwks());
    let old_token = token(&old);
    wait_until("the old key is refused", TIMEOUT, || async {
        call_with(&channel, &old_token).await.is_err()
    })
    .await;
    call_with(&channel, &token(&new)).await.expect("the new key is known");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn last_keys_stay_while_the_issuer_is_down_or_returns_garbage() {
    let signer = signer();
    let issuer = Published::start(signer.jwks()).await;
    let (server, channel) = server(&issuer.url(), |fetch| fetch.interval = Duration::from_millis(100)).await;
    call_with(&channel, &token(&signer)).await.expect("a good token");
    for nonsense in ["", "<html>", "{\"keys\":[]}", &" ".repeat(100_000)] {
        issuer.publish(nonsense.to_owned());
        let before = issuer.fetches();
        wait_until("the keys are fetched again", TIMEOUT, || async { issuer.fetches() > before + 1 }).await;
        call_with(&channel, &token(&signer)).await.expect("its keys stay");
    }
    issuer.tasks.shutdown(TIMEOUT).await;
    call_with(&channel, &token(&signer)).await.expect("its keys stay");
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn token_is_unavailable_before_the_first_fetch() {
    let signer = signer();
    let issuer = Published::start("not yet".to_owned()).await;
    let (server, channel) = server(&issuer.url(), |_| {}).await;
    let status = call_with(&channel, &token(&signer)).await.expect_err("the keys are unknown");
    assert_status(&status, Code::Unavailable, "DEPENDENCY_UNAVAILABLE");
    assert!(retry_delay(&status).is_some());
    call(&channel, "/onsale.testkit.v1.EchoService/CallAsAnyone", None).await.expect("needs no token");
    issuer.publish(signer.jwks());
    wait_until("the token is accepted", TIMEOUT, || async {
        call_with(&channel, &token(&signer)).await.is_ok()
    })
    .await;
    drop(channel);
    server.shutdown().await;
}

#[tokio::test]
async fn unknown_keys_cause_at_most_one_fetch_per_interval_min() {
    let signer = signer();
    let issuer = Published::start(signer.jwks()).await;
    let (server, channel) = server(&issuer.url(), |fetch| fetch.interval_min = Duration::from_secs(60)).await;
    call_with(&channel, &token(&signer)).await.expect("a good token");
    for _ in 0..50 {
        let status = call_with(&channel, &token(&self::signer())).await.expect_err("an unknown key");
        assert_status(&status, Code::Unauthenticated, "TOKEN_INVALID");
    }
    assert_eq!(issuer.fetches(), 1);
    drop(channel);
    server.shutdown().await;
}

#[test]
fn issuer_with_jwks_and_url_is_refused() {
    let test_issuer = TestIssuer::new();
    for (extra, problem) in [
        ("jwks_url = \"https://i.test/jwks\", jwks = \"{}\",", "stands beside jwks"),
        ("jwks_url = \"ftp://i.test/jwks\",", "must be https"),
        ("jwks_url = \"jwks\",", "must be https"),
        ("", "not a JSON Web Key Set"),
    ] {
        let issuer = format!(
            "[{{ issuer = \"https://i.test\", audiences = [\"a\"], {extra} roles_granted = [\"CUSTOMER\"] }}]"
        );
        let environment =
            onsale_testkit::service::environment(&test_issuer, &[("AUTH__ISSUERS", issuer.as_str())]);
        let refused = onsale_kit::config::load::<onsale_kit::config::NoConfig>("echo", "", &environment);
        let sentence = refused.expect_err(extra).to_string();
        assert!(sentence.contains(problem), "{sentence}");
    }
    let issuer = "[{ issuer = \"https://i.test\", audiences = [\"a\"], jwks_url = \"https://i.test/jwks\", roles_granted = [\"CUSTOMER\"] }]";
    let environment = onsale_testkit::service::environment(&test_issuer, &[("AUTH__ISSUERS", issuer)]);
    onsale_kit::config::load::<onsale_kit::config::NoConfig>("echo", "", &environment)
        .expect("good settings");
}
