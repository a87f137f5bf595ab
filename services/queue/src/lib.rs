//! Queue: fair places in line, live positions, turns, and an organizer's control of them.

pub mod config;
pub mod grpc;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::queue::v1::{
    queue_admin_service_server::QueueAdminServiceServer,
    queue_internal_service_server::QueueInternalServiceServer, queue_service_server::QueueServiceServer,
};
use onsale_storage::Stores;

use crate::{config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "queue";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    Stores::open(&config.stores, chassis).await?;
    let grpc = Arc::new(Grpc::default());
    chassis
        .add_service(QueueServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(QueueInternalServiceServer::from_arc(grpc));
    Ok(())
}
