//! Claim: a customer's right to buy held units, from turn to order.

pub mod config;
mod grpc;

mod app;
mod engine;

mod clients;
mod convert;
mod domain;
mod error;
mod store;
mod workers;

mod metrics;

use std::sync::Arc;

use onsale_kit::{BuildError, auth::TokenReader, batcher::Batcher, server::Chassis};
use onsale_proto::claim::v1::{
    claim_internal_service_server::ClaimInternalServiceServer, claim_service_server::ClaimServiceServer,
};
use onsale_storage::Stores;
use tokio::sync::Notify;

use crate::{
    app::{App, InsertProcessor, PrecheckProcessor},
    clients::{inventory::Inventory, queue::Queue},
    config::Config,
    engine::{ClaimWriter, HoldReleaser},
    grpc::Grpc,
};

/// Name of the service in its schema, key prefix and deployment.
pub const SERVICE: &str = "claim";

/// Default settings in TOML.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

const TURN_ISSUER: &str = "queue";
const TURN_AUDIENCE: &str = "onsale-turn";

/// Builds the service from its parts and adds it to the chassis.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let neighbors = chassis.neighbors()?;
    let inventory = Inventory::new(neighbors.channel("inventory", &config.neighbors.inventory)?);
    let (postgres, cooldown) = (stores.postgres.clone(), config.cooldown.rule());
    let release_hint = Arc::new(Notify::new());
    let precheck = PrecheckProcessor { postgres: postgres.clone(), cooldown };
    let insert = InsertProcessor { postgres: postgres.clone(), claims: config.claims.clone(), cooldown };
    let (batcher, tasks) = (config.create.batcher(), chassis.tasks());
    let app = Arc::new(App {
        writer: ClaimWriter::new(stores.outbox.clone(), cooldown, Arc::clone(&release_hint)),
        releaser: HoldReleaser::new(postgres, inventory.clone()),
        stores,
        queue: Queue::new(neighbors.channel("queue", &config.neighbors.queue)?),
        inventory,
        turn_tokens: TokenReader::new(config.turns.keys()?, TURN_ISSUER, TURN_AUDIENCE),
        clock: chassis.clock(),
        prechecks: Batcher::new("enter", batcher, precheck, tasks),
        inserts: Batcher::new("create_claim", batcher, insert, tasks),
        release_after: config.release_after(),
        release_hint,
        claims: config.claims.clone(),
        holds: config.holds.clone(),
    });
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(ClaimServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(ClaimInternalServiceServer::from_arc(grpc));
    Ok(())
}
