//! The gRPC face of Queue: who, what, do, answer. No rule of its own.

use onsale_proto::queue::v1::{
    queue_admin_service_server::QueueAdminService, queue_internal_service_server::QueueInternalService,
    queue_service_server::QueueService,
};

/// Serves the contracts of Queue. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl QueueService for Grpc {}

#[tonic::async_trait]
impl QueueAdminService for Grpc {}

#[tonic::async_trait]
impl QueueInternalService for Grpc {}
