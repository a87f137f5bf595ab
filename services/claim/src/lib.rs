//! Claim: a customer's right to buy held units, from turn to order.

pub mod config;
pub mod grpc;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis};
use onsale_proto::claim::v1::{
    claim_internal_service_server::ClaimInternalServiceServer, claim_service_server::ClaimServiceServer,
};
use onsale_storage::Stores;

use crate::{config::Config, grpc::Grpc};

/// The service's name: of its schema, its key prefix, its deployment.
pub const SERVICE: &str = "claim";

/// The settings it comes with.
pub const DEFAULTS: &str = include_str!("../config.default.toml");

/// Puts the parts together; the one place where they meet.
pub async fn build(config: Config, chassis: &mut Chassis) -> Result<(), BuildError> {
    Stores::open(&config.stores, chassis).await?;
    let grpc = Arc::new(Grpc::default());
    chassis
        .add_service(ClaimServiceServer::from_arc(Arc::clone(&grpc)))
        .add_service(ClaimInternalServiceServer::from_arc(grpc));
    Ok(())
}
