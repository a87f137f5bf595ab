//! `QueueService`: the interface for customers.

use futures_util::StreamExt;
use onsale_kit::auth;
use onsale_proto::queue::v1::{
    GetPositionRequest, GetPositionResponse, GetQueueSnapshotRequest, GetQueueSnapshotResponse,
    HeartbeatRequest, HeartbeatResponse, JoinQueueRequest, JoinQueueResponse, LeaveQueueRequest,
    LeaveQueueResponse, ListNeighborsRequest, ListNeighborsResponse, WatchQueueRequest, WatchQueueResponse,
    queue_service_server::QueueService,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::Grpc;
use crate::convert::{requests, responses};

#[tonic::async_trait]
impl QueueService for Grpc {
    async fn join_queue(
        &self,
        request: Request<JoinQueueRequest>,
    ) -> Result<Response<JoinQueueResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let join = requests::join_queue(customer_id, request.get_ref())?;
        let joined = self.app.join_queue(join).await?;
        Ok(Response::new(responses::join_queue(joined)))
    }

    async fn watch_queue(
        &self,
        request: Request<WatchQueueRequest>,
    ) -> Result<Response<BoxStream<WatchQueueResponse>>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let WatchQueueRequest { event_id, queue_token, last_revision } = request.into_inner();
        let query = requests::entry_query(customer_id, &event_id, queue_token)?;
        let messages = self.app.watch_queue(&query, last_revision).await?;
        let messages = messages.map(|message| message.map(responses::watch_queue).map_err(Status::from));
        Ok(Response::new(Box::pin(messages)))
    }

    async fn get_position(
        &self,
        request: Request<GetPositionRequest>,
    ) -> Result<Response<GetPositionResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let GetPositionRequest { event_id, queue_token } = request.into_inner();
        let query = requests::entry_query(customer_id, &event_id, queue_token)?;
        let view = self.app.get_position(&query).await?;
        Ok(Response::new(responses::get_position(view)))
    }

    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let HeartbeatRequest { event_id, queue_token } = request.into_inner();
        let query = requests::entry_query(customer_id, &event_id, queue_token)?;
        let view = self.app.get_position(&query).await?;
        Ok(Response::new(responses::heartbeat(view)))
    }

    async fn leave_queue(
        &self,
        request: Request<LeaveQueueRequest>,
    ) -> Result<Response<LeaveQueueResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let caller = customer_id.to_string();
        let (event_id, once) = requests::leave_queue(&caller, request.get_ref())?;
        let left = self.app.leave_queue(customer_id, event_id, &once).await?;
        Ok(Response::new(responses::leave_queue(left)?))
    }

    async fn list_neighbors(
        &self,
        request: Request<ListNeighborsRequest>,
    ) -> Result<Response<ListNeighborsResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let (event_id, neighbors_max) = requests::list_neighbors(request.get_ref())?;
        let neighborhood = self.app.list_neighbors(event_id, customer_id, neighbors_max).await?;
        Ok(Response::new(responses::list_neighbors(neighborhood)))
    }

    async fn get_queue_snapshot(
        &self,
        request: Request<GetQueueSnapshotRequest>,
    ) -> Result<Response<GetQueueSnapshotResponse>, Status> {
        let event_id = requests::event_id(&request.get_ref().event_id)?;
        let snapshot = self.app.get_queue_snapshot(event_id).await?;
        Ok(Response::new(responses::get_queue_snapshot(&snapshot)))
    }
}
