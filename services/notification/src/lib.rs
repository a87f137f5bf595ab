//! Notification: email and push to customers, each job once, none lost.

pub mod config;
pub mod grpc;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::notification::v1::{
    notification_admin_service_server::NotificationAdminServiceServer,
    notification_internal_service_server::NotificationInternalServiceServer,
    notification_service_server::NotificationServiceServer,
};
use onsale_storage::Stores;

use crate::{config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "notification";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    Stores::open(&config.stores, chassis).await?;
    let grpc = Arc::new(Grpc::default());
    chassis
        .add_service(NotificationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationInternalServiceServer::from_arc(grpc));
    Ok(())
}
