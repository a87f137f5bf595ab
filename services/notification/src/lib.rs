//! Notification: email and push to customers, each job once, none lost.

pub mod config;
pub mod grpc;

pub mod app;
pub mod clients;
pub mod convert;
pub mod domain;
pub mod error;
pub mod store;

mod metrics;
mod workers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::notification::v1::{
    notification_admin_service_server::NotificationAdminServiceServer,
    notification_internal_service_server::NotificationInternalServiceServer,
    notification_service_server::NotificationServiceServer,
};
use onsale_storage::Stores;

use crate::{app::App, clients::smtp::Smtp, config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "notification";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    metrics::describe();
    let Config { stores, mail, web, delivery } = config;
    let stores = Stores::open(&stores, chassis).await?;
    let mailer = Arc::new(Smtp::new(&mail, delivery.concurrency, chassis.clock())?);
    let app = Arc::new(App::new(stores.clone(), mailer, web, delivery));
    let tasks = chassis.tasks();
    workers::consumers::start(&app, &stores, tasks)?;
    tasks.spawn("deliver", workers::delivery::run(Arc::clone(&app), tasks.token()));
    tasks.spawn("watch deliveries", workers::watch::run(stores.postgres, tasks.token()));
    let grpc = Arc::new(Grpc::new(app));
    chassis
        .add_service(NotificationServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationAdminServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(NotificationInternalServiceServer::from_arc(grpc));
    Ok(())
}
