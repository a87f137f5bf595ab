//! Payment: payments, provider webhooks and refunds.

pub mod config;

mod grpc;
mod workers;

mod app;
mod clients;
mod convert;
mod domain;
mod engine;
mod error;
mod metrics;
mod store;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::payment::v1::{
    payment_internal_service_server::PaymentInternalServiceServer,
    payment_service_server::PaymentServiceServer,
};
use onsale_storage::{Stores, redis::Hints};

use crate::{
    app::App,
    clients::{
        ClaimClient, InventoryClient, PaymentProvider, Providers, Stripe, StripeSettings, TicketingClient,
    },
    config::{Config, ProviderConfig, ProviderHttpConfig, ProvidersConfig, WebConfig},
    engine::{PaymentChanges, StepDelays},
    grpc::Grpc,
};

/// Name of the service, its Postgres schema, its Redis key prefix and its deployment.
pub const SERVICE: &str = "payment";

/// Default settings.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Wires the parts of the service and starts its workers.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let (keys, hints) = (stores.redis.keyspace(SERVICE)?, Hints::start(&stores.redis, chassis.tasks()));
    let neighbors = chassis.neighbors()?;
    let app = Arc::new(App {
        changes: PaymentChanges::new(stores.clone(), keys, hints, StepDelays::new(&config)),
        stores,
        claims: ClaimClient::new(neighbors.channel("claim", &config.neighbors.claim)?),
        inventory: InventoryClient::new(neighbors.channel("inventory", &config.neighbors.inventory)?),
        ticketing: TicketingClient::new(neighbors.channel("ticketing", &config.neighbors.ticketing)?),
        providers: providers(&config.providers)?,
        default_provider: config.default_provider.into(),
        provider_timeout: config.providers.http.timeout,
        clock: chassis.clock(),
        web_url: config.web.url.trim_end_matches('/').to_owned(),
        payments: config.payments.clone(),
        work: config.work.clone(),
    });
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app, origins(&config.web)));
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

/// Builds a provider with Stripe's API. Returns `None`, so that it is not offered, if its URL or a secret is missing.
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

/// Returns the origins to which clients may send customers: our own, and the configured others that use https.
fn origins(web: &WebConfig) -> Vec<String> {
    let others = web.allowed_origins.iter().filter(|origin| origin.starts_with("https://"));
    others.chain([&web.url]).map(|origin| origin.trim_end_matches('/').to_owned()).collect()
}
