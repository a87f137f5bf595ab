//! Ticketing: tickets: generated, issued, shown, checked in.

pub mod app;
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
use onsale_proto::ticketing::v1::{
    generation_service_server::GenerationServiceServer,
    ticket_internal_service_server::TicketInternalServiceServer, ticket_service_server::TicketServiceServer,
};
use onsale_storage::Stores;
use tokio::sync::Notify;

use crate::{app::App, config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "ticketing";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let app = Arc::new(App {
        stores: Stores::open(&config.stores, chassis).await?,
        codes: config.codes.codes().map_err(|problem| problem.to_string())?,
        generation: config.generation,
        issuing: config.issuing,
        clock: chassis.clock(),
        job_hint: Notify::new(),
        order_hint: Notify::new(),
    });
    workers::consumers::start(&app, chassis.tasks())?;
    workers::start(&app, chassis.tasks());
    let grpc = Arc::new(Grpc { app });
    chassis
        .add_service(TicketServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(GenerationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(TicketInternalServiceServer::from_arc(grpc));
    Ok(())
}
