//! Claim: a customer's right to buy held units, from turn to order.

pub mod config;
pub mod grpc;

pub mod app;
pub mod clients;
pub mod convert;
pub mod domain;
pub mod error;
pub mod store;
pub mod workers;

mod metrics;

use std::sync::Arc;

use onsale_kit::{BuildError, auth::TokenReader, batcher::Batcher, server::Chassis};
use onsale_proto::claim::v1::{
    claim_internal_service_server::ClaimInternalServiceServer, claim_service_server::ClaimServiceServer,
};
use onsale_storage::Stores;
use tokio::sync::Notify;

use crate::{
    app::{App, Enter, Insert},
    clients::{inventory::Inventory, queue::Queue},
    config::Config,
    grpc::Grpc,
};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "claim";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Who signs turn tokens, and what they are for.
const TURN_ISSUER: &str = "queue";
const TURN_AUDIENCE: &str = "onsale-turn";

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let neighbors = chassis.neighbors()?;
    let (postgres, cooldown) = (stores.postgres.clone(), config.cooldown.rule());
    let enter = Enter { postgres: postgres.clone(), cooldown };
    let insert = Insert { postgres, claims: config.claims.clone(), cooldown };
    let (batcher, tasks) = (config.create.batcher(), chassis.tasks());
    let app = Arc::new(App {
        stores,
        entering: Batcher::new("enter", batcher, enter, tasks),
        inserting: Batcher::new("create_claim", batcher, insert, tasks),
        queue: Queue::new(neighbors.channel("queue", &config.neighbors.queue)?),
        inventory: Inventory::new(neighbors.channel("inventory", &config.neighbors.inventory)?),
        turns: TokenReader::new(config.turns.keys()?, TURN_ISSUER, TURN_AUDIENCE),
        clock: chassis.clock(),
        claims: config.claims,
        cooldown,
        holds: config.holds,
        release_hint: Notify::new(),
    });
    workers::start(&app, &config.consumers, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(ClaimServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(ClaimInternalServiceServer::from_arc(grpc));
    Ok(())
}
