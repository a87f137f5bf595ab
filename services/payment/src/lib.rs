//! Payment: payments, provider webhooks and refunds.

pub mod app;
pub mod clients;
pub mod config;
pub mod convert;
pub mod domain;
pub mod error;
pub mod grpc;
pub mod metrics;
pub mod store;
pub mod workers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::payment::v1::{
    payment_internal_service_server::PaymentInternalServiceServer,
    payment_service_server::PaymentServiceServer,
};
use onsale_storage::{Stores, redis::Hints};

use crate::{
    app::{App, Wakes},
    clients::{
        Claims, Events, PaymentProvider, Providers, Tickets,
        providers::{Stripe, StripeSettings},
    },
    config::{Config, ProviderConfig, ProviderHttpConfig, ProvidersConfig, WebConfig},
    grpc::Grpc,
};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "payment";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let neighbors = chassis.neighbors()?;
    let app = Arc::new(App {
        hints: Hints::start(&stores.redis, chassis.tasks()),
        keys: stores.redis.keyspace(SERVICE)?,
        stores,
        claims: Claims::new(neighbors.channel("claim", &config.neighbors.claim)?),
        events: Events::new(neighbors.channel("inventory", &config.neighbors.inventory)?),
        tickets: Tickets::new(neighbors.channel("ticketing", &config.neighbors.ticketing)?),
        providers: providers(&config.providers)?,
        default_provider: config.default_provider.into(),
        provider_timeout: config.providers.http.timeout,
        clock: chassis.clock(),
        origins: origins(&config.web),
        web_url: config.web.url,
        payments: config.payments,
        work: config.work,
        wakes: Wakes::default(),
    });
    workers::spawn(&app, chassis.tasks());
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(PaymentServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(PaymentInternalServiceServer::from_arc(grpc));
    Ok(())
}

fn providers(config: &ProvidersConfig) -> Result<Providers, BuildError> {
    Ok(Providers {
        sandbox: stripe("SANDBOX", &config.sandbox, &config.http)?,
        stripe: stripe("STRIPE", &config.stripe, &config.http)?,
    })
}

/// A provider of Stripe's dialect; `None` when its settings are not complete, which means: not offered.
fn stripe(
    name: &'static str,
    config: &ProviderConfig,
    http: &ProviderHttpConfig,
) -> Result<Option<Arc<dyn PaymentProvider>>, BuildError> {
    let (Some(secret_key), Some(webhook_secret)) = (&config.secret_key, &config.webhook_secret) else {
        return Ok(None);
    };
    if config.url.is_empty() {
        return Ok(None);
    }
    let stripe = Stripe::new(StripeSettings {
        name,
        url: config.url.trim_end_matches('/').to_owned(),
        secret_key: secret_key.clone(),
        webhook_secret: webhook_secret.clone(),
        webhook_tolerance: http.webhook_tolerance,
        connect_timeout: http.connect_timeout,
        timeout: http.timeout,
    })?;
    Ok(Some(Arc::new(stripe)))
}

/// The origins that clients may send customers to: our own, and others by https only.
fn origins(web: &WebConfig) -> Vec<String> {
    let others = web.allowed_origins.iter().filter(|origin| origin.starts_with("https://"));
    others.chain([&web.url]).map(|origin| origin.trim_end_matches('/').to_owned()).collect()
}
