//! `InventoryInternalService`.

use onsale_proto::inventory::v1::{self as pb, inventory_internal_service_server::InventoryInternalService};
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert;

// Nothing is remembered of requests here: each is about one hold, and the hold itself says what was done.
#[tonic::async_trait]
impl InventoryInternalService for Grpc {
    async fn reserve_units(
        &self,
        request: Request<pb::ReserveUnitsRequest>,
    ) -> Result<Response<pb::ReserveUnitsResponse>, Status> {
        let command = convert::reserve_units(&request.into_inner())?;
        Ok(Response::new(self.reservations.reserve_units(command).await?))
    }

    async fn commit_hold(
        &self,
        request: Request<pb::CommitHoldRequest>,
    ) -> Result<Response<pb::CommitHoldResponse>, Status> {
        let hold_id = convert::commit_hold(&request.into_inner())?;
        Ok(Response::new(self.endings.commit_hold(hold_id).await?))
    }

    async fn release_hold(
        &self,
        request: Request<pb::ReleaseHoldRequest>,
    ) -> Result<Response<pb::ReleaseHoldResponse>, Status> {
        let hold_id = convert::release_hold(&request.into_inner())?;
        Ok(Response::new(self.endings.release_hold(hold_id).await?))
    }
}
