//! Sign-in for development: tokens that services accept as any other issuer's, and never in production.

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

use crate::support::{Door, Envoy, http_client};

async fn open() -> Door {
    let key = SigningKey::generate().expect("randomness");
    let settings = [
        ("ENVIRONMENT", "development"),
        ("DEVELOPMENT__SIGN_IN", "true"),
        ("DEVELOPMENT__SIGNING_KEY", key.as_str()),
    ];
    Door::open_with(&settings).await
}

async fn sign_in(base: &str, asked: &Value) -> (u16, Value) {
    let request = http_client().post(format!("{base}/dev/sign-in")).body(asked.to_string());
    let response = request.send().await.expect("an answer");
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.expect("a body")).expect("JSON"))
}

/// A verifier that trusts the development issuer by the keys it publishes.
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
async fn a_token_says_who_signed_in_and_the_same_email_is_the_same_person() {
    let door = open().await;
    let envoy = Envoy::start(&door).await;
    for base in [format!("http://{}", door.http), envoy.url("")] {
        let verifier = verifier(&base).await;
        let asked = json!({ "email": "Ana@Example.com ", "name": "Ana", "locale": "hr" });
        let (status, granted) = sign_in(&base, &asked).await;
        assert_eq!(status, 200, "{granted}");
        assert_eq!(granted["token_type"], "Bearer");
        assert_eq!(granted["expires_in"], 43200);
        let ana = verifier.verify(granted["token"].as_str().expect("a token")).expect("a good token");
        assert_eq!(ana.email.as_deref(), Some("ana@example.com"));
        assert_eq!((ana.display_name.as_deref(), ana.locale.as_deref()), (Some("Ana"), Some("hr")));
        assert_eq!(ana.roles.iter().collect::<Vec<_>>(), [Role::Customer]);
        assert_eq!(granted["customer_id"], ana.customer_id().to_string());
        assert_eq!(granted["organizer_id"], ana.organizer_id().to_string());

        let asked = json!({ "email": "ana@example.com", "roles": ["organizer", "staff"] });
        let (_, again) = sign_in(&base, &asked).await;
        assert_eq!(again["customer_id"], granted["customer_id"]);
        let again = verifier.verify(again["token"].as_str().expect("a token")).expect("a good token");
        assert_eq!(again.roles.iter().collect::<Vec<_>>(), [Role::Organizer, Role::Staff]);
        let (_, other) = sign_in(&base, &json!({ "email": "bo@example.com" })).await;
        assert_ne!(other["customer_id"], granted["customer_id"]);
    }
    drop(envoy);
    door.close().await;
}

#[tokio::test]
async fn what_is_no_sign_in_is_refused_with_a_sentence() {
    let door = open().await;
    let base = format!("http://{}", door.http);
    for asked in [
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
        let (status, answer) = sign_in(&base, &asked).await;
        assert_eq!(status, 400, "{asked}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    door.close().await;
}

#[tokio::test]
async fn without_the_setting_there_is_no_sign_in() {
    let door = Door::open().await;
    let base = format!("http://{}", door.http);
    assert_eq!(sign_in(&base, &json!({ "email": "a@b" })).await.0, 404);
    let keys = http_client().get(format!("{base}/.well-known/jwks.json")).send().await.expect("an answer");
    assert_eq!(keys.status(), 404);
    door.close().await;
}

#[test]
fn in_production_a_gateway_with_sign_in_does_not_start() {
    let key = SigningKey::generate().expect("randomness");
    let settings = [("DEVELOPMENT__SIGN_IN", "true"), ("DEVELOPMENT__SIGNING_KEY", key.as_str())];
    let environment = environment(&TestIssuer::new(), &settings);
    let exit = run_in(SERVICE, DEFAULTS, &environment, onsale_gateway::build);
    assert_eq!((exit, exit.code()), (Exit::BadConfig, 64));

    let refused = onsale_kit::config::load::<Config>(SERVICE, DEFAULTS, &environment).expect_err("refused");
    let sentence = refused.to_string();
    assert!(sentence.contains("development.sign_in") && sentence.contains("production"), "{sentence}");
    assert!(!sentence.contains(&key), "no secret is shown");
}
