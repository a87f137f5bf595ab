//! The HTTP port: gRPC-Web for browsers, webhooks of payment providers, development sign-in and a start page.
//!
//! | | |
//! |---|---|
//! | `POST /<service>/<method>` | gRPC-Web, binary and text, with the same checks as gRPC |
//! | `POST /webhooks/<provider>` | forwards the raw body to Payment; 200 only after it is stored |
//! | `POST /dev/sign-in`, `GET /.well-known/jwks.json` | only if `development.sign_in` is on |
//! | `GET /` | a page that describes the gateway |

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    response::Html,
    routing::{get, post},
};
use http::{HeaderName, HeaderValue, Method, header};
use onsale_kit::{BuildError, client::Channel, server::Chassis};
use tokio::{net::TcpListener, sync::Semaphore};
use tower_http::cors::{AllowOrigin, CorsLayer};

use self::{connections::Connections, limits::RequestLimits, sign_in::SignIn, webhooks::Webhooks};
use crate::config::{Config, HttpConfig};

mod connections;
mod grpc_web;
mod limits;
mod sign_in;
mod webhooks;

/// Lifetime of CORS preflight responses in browser caches.
const CORS_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// Response headers with the gRPC status, which a page of another origin cannot read unless they are exposed.
const EXPOSED_HEADERS: [HeaderName; 3] = [
    HeaderName::from_static("grpc-status"),
    HeaderName::from_static("grpc-message"),
    HeaderName::from_static("grpc-status-details-bin"),
];

/// Binds the port, serves it until the chassis drains and returns the bound address.
pub(crate) async fn serve(
    config: &Config,
    chassis: &Chassis,
    payment: Channel,
) -> Result<SocketAddr, BuildError> {
    let listen = config.http.listen;
    let listener =
        TcpListener::bind(listen).await.map_err(|error| format!("failed to listen on {listen}: {error}"))?;
    let address = listener.local_addr()?;
    let router = router(config, chassis, payment)?;
    let connections =
        Connections { config: config.http.clone(), drain: chassis.secondary_endpoint().draining() };
    chassis.tasks().spawn("http", connections.serve(listener, router));
    tracing::info!(%address, "serving http");
    Ok(address)
}

fn router(config: &Config, chassis: &Chassis, payment: Channel) -> Result<Router, BuildError> {
    let webhooks = Webhooks::new(payment, chassis.clock(), &config.http);
    let mut plain = Router::new()
        .route("/", get(async || Html(include_str!("web/page.html"))))
        .route("/webhooks/{provider}", post(webhooks::receive).with_state(webhooks))
        .layer(DefaultBodyLimit::max(config.http.webhook_bytes_max));
    if let Some(sign_in) = SignIn::new(&config.development, chassis.clock())? {
        tracing::warn!("development sign-in enabled, any caller can sign in as any user");
        plain = plain.merge(sign_in.router());
    }
    let limits = RequestLimits {
        permits: Arc::new(Semaphore::new(config.http.requests_in_flight_max)),
        timeout: config.http.request_timeout,
    };
    let plain =
        plain.layer(middleware::from_fn(move |request, next| limits::enforce(limits.clone(), request, next)));
    let router = plain.fallback_service(grpc_web::service(chassis.secondary_endpoint()));
    Ok(match cors(&config.http) {
        Some(cors) => router.layer(cors),
        None => router,
    })
}

/// Returns the CORS layer, or `None` if no origin is allowed.
fn cors(config: &HttpConfig) -> Option<CorsLayer> {
    let origins = match config.cors_origins.as_slice() {
        [] => return None,
        origins if origins.iter().any(|origin| origin == "*") => AllowOrigin::any(),
        origins => AllowOrigin::list(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok())),
    };
    let allowed = [
        header::AUTHORIZATION,
        header::CONTENT_TYPE,
        HeaderName::from_static("grpc-timeout"),
        HeaderName::from_static("x-grpc-web"),
        HeaderName::from_static("x-user-agent"),
    ];
    let layer = CorsLayer::new().allow_origin(origins).allow_methods([Method::GET, Method::POST]);
    Some(layer.allow_headers(allowed).expose_headers(EXPOSED_HEADERS).max_age(CORS_AGE_MAX))
}
