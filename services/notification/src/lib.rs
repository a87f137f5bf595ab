//! Notification: mails to customers. Each job is sent once, and none is lost.

mod config;
mod grpc;
mod workers;

mod app;
mod clients;
mod convert;
mod domain;
mod error;
mod metrics;
mod store;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::notification::v1::{
    notification_admin_service_server::NotificationAdminServiceServer,
    notification_internal_service_server::NotificationInternalServiceServer,
    notification_service_server::NotificationServiceServer,
};
use onsale_storage::Stores;

use crate::{app::App, clients::smtp::Smtp, config::Config, grpc::Grpc};

/// Name of the service, its Postgres schema, its Redis key prefix and its deployment.
pub const SERVICE: &str = "notification";

/// Default settings.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Wires the parts of the service and starts its workers.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let stores = Stores::open(&config.stores, chassis).await?;
    let mailer = Arc::new(Smtp::new(&config.mail, config.delivery.concurrency, chassis.clock())?);
    let app = Arc::new(App::new(stores, mailer, &config));
    workers::start(&app, &config, chassis)?;
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(NotificationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationInternalServiceServer::from_arc(grpc));
    Ok(())
}
