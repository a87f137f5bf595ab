//! `QueueService`: a customer's side of the queue.

use futures_util::StreamExt;
use onsale_kit::auth;
use onsale_proto::queue::v1::{
    GetPositionRequest, GetPositionResponse, GetQueueSnapshotRequest, GetQueueSnapshotResponse,
    HeartbeatRequest, HeartbeatResponse, JoinQueueRequest, JoinQueueResponse, LeaveQueueRequest,
    LeaveQueueResponse, ListNeighborsRequest, ListNeighborsResponse, WatchQueueRequest, WatchQueueResponse,
    queue_service_server::QueueService,
};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::Grpc;
use crate::convert::{requests, responses as answers};

#[tonic::async_trait]
impl QueueService for Grpc {
    async fn join_queue(
        &self,
        request: Request<JoinQueueRequest>,
    ) -> Result<Response<JoinQueueResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let join = requests::join(customer_id, request.get_ref())?;
        let joined = self.joins.join(join).await?;
        Ok(Response::new(answers::joined(joined)))
    }

    async fn watch_queue(
        &self,
        request: Request<WatchQueueRequest>,
    ) -> Result<Response<BoxStream<WatchQueueResponse>>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let WatchQueueRequest { event_id, queue_token, last_revision } = request.into_inner();
        let own = requests::own_entry(customer_id, &event_id, queue_token)?;
        let updates = self.app.watch(&own, last_revision).await?;
        let answers = updates.map(|told| told.map(answers::told).map_err(Status::from));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn get_position(
        &self,
        request: Request<GetPositionRequest>,
    ) -> Result<Response<GetPositionResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let GetPositionRequest { event_id, queue_token } = request.into_inner();
        let own = requests::own_entry(customer_id, &event_id, queue_token)?;
        let standing = self.app.position(&own).await?;
        Ok(Response::new(GetPositionResponse { standing: Some(answers::standing(standing)) }))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let HeartbeatRequest { event_id, queue_token } = request.into_inner();
        let own = requests::own_entry(customer_id, &event_id, queue_token)?;
        let standing = self.app.position(&own).await?;
        Ok(Response::new(HeartbeatResponse { standing: Some(answers::standing(standing)) }))
    }

    async fn leave_queue(
        &self,
        request: Request<LeaveQueueRequest>,
    ) -> Result<Response<LeaveQueueResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let leave = requests::leave(request.get_ref())?;
        let caller = customer_id.to_string();
        let once = idempotency::Request::new("LeaveQueue", &caller, leave.request_id, request.get_ref());
        let left = self.app.leave(customer_id, leave.event_id, &once).await?;
        Ok(Response::new(left))
    }

    async fn list_neighbors(
        &self,
        request: Request<ListNeighborsRequest>,
    ) -> Result<Response<ListNeighborsResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let (event_id, neighbors_max) = requests::neighbors(request.get_ref())?;
        let neighborhood = self.app.neighbors(event_id, customer_id, neighbors_max).await?;
        Ok(Response::new(answers::neighbors(neighborhood)))
    }

    async fn get_queue_snapshot(
        &self,
        request: Request<GetQueueSnapshotRequest>,
    ) -> Result<Response<GetQueueSnapshotResponse>, Status> {
        let event_id = requests::event_id(&request.get_ref().event_id)?;
        let snapshot = self.app.snapshot(event_id).await?;
        Ok(Response::new(answers::snapshot(&snapshot)))
    }
}
