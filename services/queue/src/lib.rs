//! Queue: fair places in line, live positions, turns for purchases, and an organizer's control of them.

pub(crate) mod app;
pub(crate) mod clients;
pub mod config;
pub(crate) mod convert;
pub mod domain;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod grpc;
pub(crate) mod metrics;
pub mod store;
pub(crate) mod workers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::queue::v1::{
    queue_admin_service_server::QueueAdminServiceServer,
    queue_internal_service_server::QueueInternalServiceServer, queue_service_server::QueueServiceServer,
};
use onsale_storage::Stores;

use crate::{
    app::{App, AppParts},
    clients::inventory::Inventory,
    config::Config,
    engine::{Engine, EngineParts, tokens::Tokens},
    grpc::Grpc,
    store::keys::Keys,
};

/// Name of the service, which is also its schema, key prefix and deployment.
pub const SERVICE: &str = "queue";

/// Default settings of the service.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Connects the parts of the service and adds it to the chassis.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let keys = Keys::new(stores.redis.keyspace(SERVICE)?);
    let inventory = chassis.neighbors()?.channel("inventory", &config.neighbors.inventory)?;
    let turns = &config.turns;
    let engine = Engine::new(EngineParts {
        stores,
        keys,
        defaults: config.policy.into(),
        tokens: Tokens::new(turns.signing_key.expose(), turns.queue_token_lifetime, &config.web.url)?,
        tasks: chassis.tasks().clone(),
        watch_config: config.watch,
        encode_external: convert::external::encode,
    });
    let app = App::new(AppParts {
        engine,
        clock: chassis.clock(),
        inventory: Inventory::new(inventory),
        admission: config.admission,
        sweep: config.sweep,
        join: config.join,
    });
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(QueueServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueInternalServiceServer::from_arc(grpc));
    Ok(())
}
