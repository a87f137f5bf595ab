//! The gRPC face of Notification: who, what, do, answer. No rule of its own.

use onsale_proto::notification::v1::{
    notification_admin_service_server::NotificationAdminService,
    notification_internal_service_server::NotificationInternalService,
    notification_service_server::NotificationService,
};

/// Serves the contracts of Notification. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl NotificationService for Grpc {}

#[tonic::async_trait]
impl NotificationAdminService for Grpc {}

#[tonic::async_trait]
impl NotificationInternalService for Grpc {}
