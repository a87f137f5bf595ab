//! `InventoryInternalService`.

use onsale_kit::auth;
use onsale_proto::inventory::v1::{self as pb, inventory_internal_service_server::InventoryInternalService};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert;

#[tonic::async_trait]
impl InventoryInternalService for Grpc {
    async fn reserve_units(
        &self,
        request: Request<pb::ReserveUnitsRequest>,
    ) -> Result<Response<pb::ReserveUnitsResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let body = request.into_inner();
        let reserve = convert::reserve_units(&body)?;
        let once = idempotency::Request::new("ReserveUnits", &caller, reserve.request_id, &body);
        Ok(Response::new(self.app.reserve_units(&once, &reserve.command).await?))
    }

    async fn commit_hold(
        &self,
        request: Request<pb::CommitHoldRequest>,
    ) -> Result<Response<pb::CommitHoldResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let body = request.into_inner();
        let command = convert::commit_hold(&body)?;
        let once = idempotency::Request::new("CommitHold", &caller, command.request_id, &body);
        Ok(Response::new(self.app.commit_hold(&once, command.hold_id).await?))
    }

    async fn release_hold(
        &self,
        request: Request<pb::ReleaseHoldRequest>,
    ) -> Result<Response<pb::ReleaseHoldResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let body = request.into_inner();
        let command = convert::release_hold(&body)?;
        let once = idempotency::Request::new("ReleaseHold", &caller, command.request_id, &body);
        Ok(Response::new(self.app.release_hold(&once, command.hold_id).await?))
    }
}
