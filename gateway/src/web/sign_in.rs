//! Development sign-in: issues a token for any email address without a check. The settings refuse it in production.

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

use super::limits::refuse;
use crate::config::DevelopmentConfig;

/// UUID namespace of subjects. Changing it would give every email address a new customer id.
const SUBJECT_NAMESPACE: Uuid = Uuid::from_u128(0x3b0c_6f1e_94d7_4f0a_8a3d_71c2_5e60_9d14);

const BODY_BYTES_MAX: usize = 16 * 1024;
const EMAIL_BYTES_MAX: usize = 254;
const NAME_BYTES_MAX: usize = 100;
const LOCALE_BYTES_MAX: usize = 35;

/// The development token issuer.
pub(super) struct SignIn {
    signer: TokenSigner,
    issuer: Arc<str>,
    audience: String,
    lifetime: Duration,
    clock: Arc<dyn Clock>,
}

/// Body of `POST /dev/sign-in`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SignInRequest {
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

/// Claims of a token besides issuer, subject, audience and expiry.
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

/// Response of `POST /dev/sign-in`. `expires_in` is in seconds.
#[derive(Debug, Serialize)]
struct SignInResponse {
    token: String,
    token_type: &'static str,
    expires_in: u64,
    customer_id: String,
    organizer_id: String,
}

impl SignIn {
    /// Returns the issuer, or `None` if `development.sign_in` is off.
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

    fn issue_token(&self, request: &SignInRequest) -> Result<SignInResponse, BuildError> {
        let email = request.email.trim().to_lowercase();
        let subject = Uuid::new_v5(&SUBJECT_NAMESPACE, email.as_bytes()).to_string();
        let now = self.clock.now();
        let expiry = now.checked_add(self.lifetime).ok_or("the expiry of the token is out of range")?;
        let claims = Claims {
            email: &email,
            email_verified: true,
            name: request.name.as_deref(),
            locale: request.locale.as_deref(),
            roles: &request.roles,
            iat: now.to_seconds_and_nanos().0,
        };
        let fields = TokenFields { audience: &self.audience, subject: &subject, expiry };
        let token = self.signer.sign(&fields, &claims)?;
        // Derive the ids from an identity, as every service does, so that they match.
        let identity = Identity {
            subject,
            roles: RoleSet::EMPTY,
            issuer: Arc::clone(&self.issuer),
            email: Some(email),
            locale: None,
            display_name: None,
            expiry,
        };
        Ok(SignInResponse {
            token,
            token_type: "Bearer",
            expires_in: self.lifetime.as_secs(),
            customer_id: identity.customer_id().to_string(),
            organizer_id: identity.organizer_id().to_string(),
        })
    }
}

/// Handles `POST /dev/sign-in`.
async fn sign_in(State(issuer): State<Arc<SignIn>>, body: Bytes) -> Response {
    let request: SignInRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("invalid sign-in request: {error}")),
    };
    if let Some(violation) = request.violation() {
        return refuse(StatusCode::BAD_REQUEST, violation);
    }
    match issuer.issue_token(&request) {
        Ok(response) => ([(CACHE_CONTROL, "no-store")], Json(response)).into_response(),
        Err(error) => {
            tracing::error!(error, "failed to sign a development token, sign-in refused");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
        }
    }
}

/// Handles `GET /.well-known/jwks.json`.
async fn jwks(State(issuer): State<Arc<SignIn>>) -> Response {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "max-age=60")], issuer.signer.jwks())
        .into_response()
}

impl SignInRequest {
    /// Returns the first violation, or `None` if the request is valid.
    fn violation(&self) -> Option<&'static str> {
        let is_plain =
            |text: &str, bytes_max: usize| text.len() <= bytes_max && !text.chars().any(char::is_control);
        let is_email = self.email.trim().split_once('@').is_some_and(|(local, host)| {
            !local.is_empty() && !host.is_empty() && !host.contains('@') && !self.email.trim().contains(' ')
        });
        if !is_email || !is_plain(&self.email, EMAIL_BYTES_MAX) {
            return Some("email must be an email address");
        }
        if !self.name.as_deref().is_none_or(|name| is_plain(name, NAME_BYTES_MAX)) {
            return Some("name must be at most 100 bytes");
        }
        let is_tag = |locale: &str| locale.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !self.locale.as_deref().is_none_or(|locale| is_tag(locale) && is_plain(locale, LOCALE_BYTES_MAX)) {
            return Some("locale must be a language tag such as hr");
        }
        self.roles.is_empty().then_some("roles must contain at least one of customer, organizer, staff")
    }
}
