//! The gRPC face of Claim: who, what, do, answer. No rule of its own.

use onsale_proto::claim::v1::{
    claim_internal_service_server::ClaimInternalService, claim_service_server::ClaimService,
};

/// Serves the contracts of Claim. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl ClaimService for Grpc {}

#[tonic::async_trait]
impl ClaimInternalService for Grpc {}
