//! `InventoryInternalService`.

use onsale_proto::inventory::v1::{self as pb, inventory_internal_service_server::InventoryInternalService};
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert::{requests, responses};

// These methods are idempotent by the hold id, so no answers are stored for their request ids.
#[tonic::async_trait]
impl InventoryInternalService for Grpc {
    async fn reserve_units(
        &self,
        request: Request<pb::ReserveUnitsRequest>,
    ) -> Result<Response<pb::ReserveUnitsResponse>, Status> {
        let body = request.into_inner();
        let (command, known_revision) = (requests::reserve_units(&body)?, body.known_event_revision);
        drop(body);
        let reservation = self.app.reserve_units(command).await?;
        Ok(Response::new(responses::reserve_units(&reservation, known_revision)?))
    }

    async fn commit_hold(
        &self,
        request: Request<pb::CommitHoldRequest>,
    ) -> Result<Response<pb::CommitHoldResponse>, Status> {
        let hold_id = requests::commit_hold(&request.into_inner())?;
        let committed = self.app.commit_hold(hold_id).await?;
        Ok(Response::new(responses::commit_hold(&committed)?))
    }

    async fn release_hold(
        &self,
        request: Request<pb::ReleaseHoldRequest>,
    ) -> Result<Response<pb::ReleaseHoldResponse>, Status> {
        let hold_id = requests::release_hold(&request.into_inner())?;
        let released = self.app.release_hold(hold_id).await?;
        Ok(Response::new(responses::release_hold(&released)?))
    }
}
