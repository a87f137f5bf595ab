//! The gRPC face of Ticketing: who, what, do, answer. No rule of its own.

use onsale_proto::ticketing::v1::{
    generation_service_server::GenerationService, ticket_internal_service_server::TicketInternalService,
    ticket_service_server::TicketService,
};

/// Serves the contracts of Ticketing. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl TicketService for Grpc {}

#[tonic::async_trait]
impl GenerationService for Grpc {}

#[tonic::async_trait]
impl TicketInternalService for Grpc {}
