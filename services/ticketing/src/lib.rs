//! Ticketing: generates one ticket per unit, issues tickets to buyers, shows them, and checks them in at the venue.

pub mod domain;

mod config;
mod grpc;
mod workers;

mod app;
mod convert;
mod error;
mod metrics;
mod store;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::ticketing::v1::{
    generation_service_server::GenerationServiceServer,
    ticket_internal_service_server::TicketInternalServiceServer, ticket_service_server::TicketServiceServer,
};
use onsale_storage::Stores;
use tokio::sync::Notify;

use crate::{app::App, config::Config, grpc::Grpc};

/// Name of the service, its Postgres schema, its Redis key prefix and its deployment.
pub const SERVICE: &str = "ticketing";

/// Default settings, as TOML.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Opens the stores, starts the workers and registers the gRPC services.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let app = Arc::new(App {
        stores: Stores::open(&config.stores, chassis).await?,
        codes: config.codes.codes().map_err(|problem| problem.to_string())?,
        generation: config.generation.clone(),
        issuing: config.issuing.clone(),
        clock: chassis.clock(),
        generation_hint: Arc::new(Notify::new()),
        issuing_hint: Arc::new(Notify::new()),
    });
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(TicketServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(GenerationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(TicketInternalServiceServer::from_arc(grpc));
    Ok(())
}
