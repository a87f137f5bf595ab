//! The gRPC face of Inventory: who, what, do, answer. No rule of its own.

use onsale_proto::inventory::v1::{
    event_service_server::EventService, inventory_internal_service_server::InventoryInternalService,
    inventory_service_server::InventoryService, quota_service_server::QuotaService,
};

/// Serves the contracts of Inventory. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl EventService for Grpc {}

#[tonic::async_trait]
impl InventoryService for Grpc {}

#[tonic::async_trait]
impl QuotaService for Grpc {}

#[tonic::async_trait]
impl InventoryInternalService for Grpc {}
