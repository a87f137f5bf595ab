//! Sign-in for development: whoever asks gets a token for whoever they say they are. The settings refuse it in production.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use onsale_kit::{
    BuildError,
    auth::{Identity, SigningKey, TokenFields, TokenSigner},
    contract::RoleSet,
};
use onsale_types::Clock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::answer::refuse;
use crate::config::DevelopmentConfig;

/// The namespace of subjects: the same email is the same person, for ever.
const PEOPLE: Uuid = Uuid::from_u128(0x3b0c_6f1e_94d7_4f0a_8a3d_71c2_5e60_9d14);

const BODY_BYTES_MAX: usize = 16 * 1024;
const EMAIL_BYTES_MAX: usize = 254;
const NAME_BYTES_MAX: usize = 100;
const LOCALE_BYTES_MAX: usize = 35;

/// The issuer.
pub(super) struct SignIn {
    signer: TokenSigner,
    issuer: Arc<str>,
    audience: String,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
}

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    email: String,
    name: Option<String>,
    locale: Option<String>,
    #[serde(default = "roles_default")]
    roles: Vec<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Customer,
    Organizer,
    Staff,
}

fn roles_default() -> Vec<Role> {
    vec![Role::Customer]
}

/// What a token says besides who, for whom and until when.
#[derive(Debug, Serialize)]
struct Claims<'a> {
    email: &'a str,
    email_verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    locale: Option<&'a str>,
    roles: &'a [Role],
    iat: i64,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Granted {
    token: String,
    token_type: &'static str,
    expires_in: u64,
    customer_id: String,
    organizer_id: String,
}

impl SignIn {
    /// The issuer, when the settings switch it on.
    pub(super) fn new(config: &DevelopmentConfig, clock: Arc<dyn Clock>) -> Result<Option<Self>, BuildError> {
        if !config.sign_in {
            return Ok(None);
        }
        let key = config.signing_key.as_ref().ok_or("development.signing_key is missing")?;
        let signer = TokenSigner::new(SigningKey::parse(key.expose())?, &config.issuer);
        Ok(Some(Self {
            signer,
            issuer: config.issuer.as_str().into(),
            audience: config.audience.clone(),
            lifetime: config.token_lifetime,
            clock,
        }))
    }

    pub(super) fn router(self) -> Router {
        Router::new()
            .route("/dev/sign-in", post(sign_in))
            .route("/.well-known/jwks.json", get(jwks))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::new(self))
    }

    fn grant(&self, asked: &Asked) -> Result<Granted, BuildError> {
        let email = asked.email.trim().to_lowercase();
        let subject = Uuid::new_v5(&PEOPLE, email.as_bytes()).to_string();
        let now = self.clock.now();
        let expiry = now.checked_add(self.lifetime).ok_or("the token would never end")?;
        let claims = Claims {
            email: &email,
            email_verified: true,
            name: asked.name.as_deref(),
            locale: asked.locale.as_deref(),
            roles: &asked.roles,
            iat: now.to_seconds_and_nanos().0,
        };
        let facts = TokenFields { audience: &self.audience, subject: &subject, expiry };
        let token = self.signer.sign(&facts, &claims)?;
        // As every service will see them, so that the ids below are theirs.
        let identity = Identity {
            subject,
            roles: RoleSet::EMPTY,
            issuer: Arc::clone(&self.issuer),
            email: Some(email),
            locale: None,
            display_name: None,
            expiry,
        };
        Ok(Granted {
            token,
            token_type: "Bearer",
            expires_in: self.lifetime.as_secs(),
            customer_id: identity.customer_id().to_string(),
            organizer_id: identity.organizer_id().to_string(),
        })
    }
}

/// `POST /dev/sign-in`.
async fn sign_in(State(issuer): State<Arc<SignIn>>, body: Bytes) -> Response {
    let asked: Asked = match serde_json::from_slice(&body) {
        Ok(asked) => asked,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("not a sign-in: {error}")),
    };
    if let Some(problem) = asked.problem() {
        return refuse(StatusCode::BAD_REQUEST, problem);
    }
    match issuer.grant(&asked) {
        Ok(granted) => ([(CACHE_CONTROL, "no-store")], Json(granted)).into_response(),
        Err(error) => {
            tracing::error!(error, "failed to make a token");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}

/// `GET /.well-known/jwks.json`.
async fn jwks(State(issuer): State<Arc<SignIn>>) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "max-age=60")], issuer.signer.jwks())
        .into_response()
}

impl Asked {
    /// What is wrong with it, if anything.
    fn problem(&self) -> Option<&'static str> {
        let is_plain =
            |text: &str, bytes_max: usize| text.len() <= bytes_max && !text.chars().any(char::is_control);
        let is_email = self.email.trim().split_once('@').is_some_and(|(local, host)| {
            !local.is_empty() && !host.is_empty() && !host.contains('@') && !self.email.trim().contains(' ')
        });
        if !is_email || !is_plain(&self.email, EMAIL_BYTES_MAX) {
            return Some("email must be an address");
        }
        if !self.name.as_deref().is_none_or(|name| is_plain(name, NAME_BYTES_MAX)) {
            return Some("name must be at most 100 bytes");
        }
        let is_tag = |locale: &str| locale.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !self.locale.as_deref().is_none_or(|locale| is_tag(locale) && is_plain(locale, LOCALE_BYTES_MAX)) {
            return Some("locale must be a language tag such as hr");
        }
        self.roles.is_empty().then_some("roles must have at least one of customer, organizer, staff")
    }
}
