//! Development sign-in: services accept its tokens like those of any issuer, and production refuses the setting.

use std::sync::Arc;

use onsale_gateway::{DEFAULTS, SERVICE, config::Config};
use onsale_kit::{
    Exit,
    auth::{GrantedRole, IssuerConfig, SigningKey, Verifier},
    config::Text,
    run_in,
};
use onsale_proto::auth::v1::Role;
use onsale_testkit::{service::environment, tokens::TestIssuer};
use onsale_types::SystemClock;
use serde_json::{Value, json};

use crate::support::{Envoy, TestGateway, http_client};

async fn open() -> TestGateway {
    let key = SigningKey::generate().expect("randomness");
    let settings = [
        ("ENVIRONMENT", "development"),
        ("DEVELOPMENT__SIGN_IN", "true"),
        ("DEVELOPMENT__SIGNING_KEY", key.as_str()),
    ];
    TestGateway::open_with(&settings).await
}

async fn sign_in(base: &str, body: &Value) -> (u16, Value) {
    let request = http_client().post(format!("{base}/dev/sign-in")).body(body.to_string());
    let response = request.send().await.expect("a response");
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.expect("a body")).expect("JSON"))
}

/// Returns a verifier that trusts the published keys of the development issuer.
async fn verifier(base: &str) -> Verifier {
    let jwks = http_client().get(format!("{base}/.well-known/jwks.json")).send().await.expect("keys");
    let mut config = TestIssuer::new().auth_config();
    config.issuers = vec![IssuerConfig {
        issuer: "http://localhost:8080".to_owned(),
        audiences: vec!["onsale".to_owned()],
        jwks: Text::from(jwks.text().await.expect("keys")),
        roles_granted: vec![GrantedRole::Customer, GrantedRole::Organizer, GrantedRole::Staff],
        ..config.issuers.remove(0)
    }];
    Verifier::new(&config, Arc::new(SystemClock)).expect("good keys")
}

#[tokio::test]
async fn token_identifies_the_user_and_one_email_keeps_its_ids() {
    let gateway = open().await;
    let envoy = Envoy::start(&gateway).await;
    for base in [format!("http://{}", gateway.http), envoy.url("")] {
        let verifier = verifier(&base).await;
        let body = json!({ "email": "Ana@Example.com ", "name": "Ana", "locale": "hr" });
        let (status, response) = sign_in(&base, &body).await;
        assert_eq!(status, 200, "{response}");
        assert_eq!(response["token_type"], "Bearer");
        assert_eq!(response["expires_in"], 43200);
        let ana = verifier.verify(response["token"].as_str().expect("a token")).expect("a good token");
        assert_eq!(ana.email.as_deref(), Some("ana@example.com"));
        assert_eq!((ana.display_name.as_deref(), ana.locale.as_deref()), (Some("Ana"), Some("hr")));
        assert_eq!(ana.roles.iter().collect::<Vec<_>>(), [Role::Customer]);
        assert_eq!(response["customer_id"], ana.customer_id().to_string());
        assert_eq!(response["organizer_id"], ana.organizer_id().to_string());

        let body = json!({ "email": "ana@example.com", "roles": ["organizer", "staff"] });
        let (_, again) = sign_in(&base, &body).await;
        assert_eq!(again["customer_id"], response["customer_id"]);
        let again = verifier.verify(again["token"].as_str().expect("a token")).expect("a good token");
        assert_eq!(again.roles.iter().collect::<Vec<_>>(), [Role::Organizer, Role::Staff]);
        let (_, other) = sign_in(&base, &json!({ "email": "bo@example.com" })).await;
        assert_ne!(other["customer_id"], response["customer_id"]);
    }
    drop(envoy);
    gateway.close().await;
}

#[tokio::test]
async fn invalid_sign_in_is_refused_with_a_message() {
    let gateway = open().await;
    let base = format!("http://{}", gateway.http);
    for body in [
        json!({}),
        json!({ "email": "" }),
        json!({ "email": "ana" }),
        json!({ "email": "a b@c" }),
        json!({ "email": "a@b", "roles": [] }),
        json!({ "email": "a@b", "roles": ["service"] }),
        json!({ "email": "a@b", "roles": ["anyone"] }),
        json!({ "email": "a@b", "locale": "hr\n" }),
        json!({ "email": "a@b", "surprise": 1 }),
        json!([]),
    ] {
        let (status, response) = sign_in(&base, &body).await;
        assert_eq!(status, 400, "{body}");
        assert!(response["error"].is_string(), "{response}");
    }
    gateway.close().await;
}

#[tokio::test]
async fn sign_in_is_not_found_unless_enabled() {
    let gateway = TestGateway::open().await;
    let base = format!("http://{}", gateway.http);
    assert_eq!(sign_in(&base, &json!({ "email": "a@b" })).await.0, 404);
    let keys = http_client().get(format!("{base}/.well-known/jwks.json")).send().await.expect("a response");
    assert_eq!(keys.status(), 404);
    gateway.close().await;
}

#[test]
fn production_refuses_to_start_with_sign_in() {
    let key = SigningKey::generate().expect("randomness");
    let settings = [("DEVELOPMENT__SIGN_IN", "true"), ("DEVELOPMENT__SIGNING_KEY", key.as_str())];
    let environment = environment(&TestIssuer::new(), &settings);
    let exit = run_in(SERVICE, DEFAULTS, &environment, onsale_gateway::build);
    assert_eq!((exit, exit.code()), (Exit::BadConfig, 64));

    let refused = onsale_kit::config::load::<Config>(SERVICE, DEFAULTS, &environment).expect_err("refused");
    let sentence = refused.to_string();
    assert!(sentence.contains("development.sign_in") && sentence.contains("production"), "{sentence}");
    assert!(!sentence.contains(&key), "the message must not contain the key");
}
