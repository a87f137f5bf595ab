//! Queue: fair places in line, live positions, turns, and an organizer's control of them.

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
use onsale_proto::queue::v1::{
    queue_admin_service_server::QueueAdminServiceServer,
    queue_internal_service_server::QueueInternalServiceServer, queue_service_server::QueueServiceServer,
};
use onsale_storage::Stores;

use crate::{
    app::{App, Parts, join::Joins, tokens::Tokens},
    clients::inventory::Inventory,
    config::Config,
    grpc::Grpc,
    store::{keys::Keys, move_log::MoveLog, presence::Presence, ranks::Ranks},
};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "queue";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let keys = Keys::new(stores.redis.keyspace(SERVICE)?);
    let inventory = chassis.neighbors()?.channel("inventory", &config.neighbors.inventory)?;
    let turns = &config.turns;
    let app = App::new(Parts {
        ranks: Ranks::new(stores.redis.clone(), keys.clone()),
        log: MoveLog::new(stores.redis.clone(), keys.clone()),
        presence: Presence::new(stores.redis.clone(), keys),
        stores,
        inventory: Inventory::new(inventory),
        tokens: Tokens::new(turns.signing_key.expose(), turns.queue_token_lifetime, &config.web.url)?,
        clock: chassis.clock(),
        defaults: config.policy.into(),
        admission: config.admission,
        sweep: config.sweep,
        watching: config.watch,
        tasks: chassis.tasks().clone(),
    });
    workers::start(&app, &config)?;
    let joins = Joins::new(&app, &config.join, chassis.tasks());
    let grpc = Arc::new(Grpc::new(app, joins));
    chassis
        .add_service(QueueServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueInternalServiceServer::from_arc(grpc));
    Ok(())
}
