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
        let command = convert::reserve_units(request.get_ref())?;
        Ok(Response::new(self.reservations.reserve_units(command).await?))
    }

    async fn commit_hold(
        &self,
        request: Request<pb::CommitHoldRequest>,
    ) -> Result<Response<pb::CommitHoldResponse>, Status> {
        let hold = self.endings.commit_hold(convert::commit_hold(request.get_ref())?).await?;
        Ok(Response::new(convert::committed(&hold)))
    }

    async fn release_hold(
        &self,
        request: Request<pb::ReleaseHoldRequest>,
    ) -> Result<Response<pb::ReleaseHoldResponse>, Status> {
        let hold = self.endings.release_hold(convert::release_hold(request.get_ref())?).await?;
        Ok(Response::new(convert::released(&hold)))
    }
}
