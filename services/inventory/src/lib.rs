//! Inventory: events, sectors and units; what is free, held and sold.

pub mod app;
pub mod config;
pub mod convert;
pub mod domain;
pub mod error;
pub mod grpc;
mod metrics;
pub mod store;
pub mod workers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::inventory::v1::{
    event_service_server::EventServiceServer,
    inventory_internal_service_server::InventoryInternalServiceServer,
    inventory_service_server::InventoryServiceServer, quota_service_server::QuotaServiceServer,
};
use onsale_storage::Stores;

use crate::{
    app::{App, InvitationTokens},
    config::Config,
    grpc::Grpc,
};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "inventory";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let invitation_tokens = InvitationTokens::new(&config.invitations)?;
    let app = Arc::new(App::new(config, stores, invitation_tokens, chassis)?);
    workers::start(&app, chassis.tasks())?;
    workers::consumers::start(&app, chassis.tasks())?;
    let grpc = Arc::new(Grpc::new(app, chassis.tasks()));
    chassis
        .add_service(EventServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(InventoryServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QuotaServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(InventoryInternalServiceServer::from_arc(grpc));
    Ok(())
}
