//! Ticketing: tickets: generated, issued, shown, checked in.

pub mod config;
pub mod grpc;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::ticketing::v1::{
    generation_service_server::GenerationServiceServer,
    ticket_internal_service_server::TicketInternalServiceServer, ticket_service_server::TicketServiceServer,
};
use onsale_storage::Stores;

use crate::{config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "ticketing";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    Stores::open(&config.stores, chassis).await?;
    let grpc = Arc::new(Grpc::default());
    chassis
        .add_service(TicketServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(GenerationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(TicketInternalServiceServer::from_arc(grpc));
    Ok(())
}
