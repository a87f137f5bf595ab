//! The gRPC face of Payment: who, what, do, answer. No rule of its own.

use onsale_proto::payment::v1::{
    payment_internal_service_server::PaymentInternalService, payment_service_server::PaymentService,
};

/// Serves the contracts of Payment. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug, Default)]
pub struct Grpc {}

#[tonic::async_trait]
impl PaymentService for Grpc {}

#[tonic::async_trait]
impl PaymentInternalService for Grpc {}
