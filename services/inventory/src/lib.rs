//! Inventory: events with their sectors and units, and the stock of free, held and sold units.

mod app;
mod config;
mod convert;
mod domain;
mod engine;
mod error;
mod grpc;
mod metrics;
pub mod store;
mod workers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::inventory::v1::{
    event_service_server::EventServiceServer,
    inventory_internal_service_server::InventoryInternalServiceServer,
    inventory_service_server::InventoryServiceServer, quota_service_server::QuotaServiceServer,
};
use onsale_storage::Stores;

use crate::{app::App, config::Config, grpc::Grpc};

/// Name of the service, which is also its schema, Redis prefix and deployment.
pub const SERVICE: &str = "inventory";

/// Default settings, as TOML.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Opens the stores, starts the workers and registers the gRPC services.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let config = Arc::new(config);
    let stores = Stores::open(&config.stores, chassis).await?;
    let app = Arc::new(App::new(&config, stores, chassis)?);
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(EventServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(InventoryServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QuotaServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(InventoryInternalServiceServer::from_arc(grpc));
    Ok(())
}
