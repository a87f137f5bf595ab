//! `QueueAdminService`: an organizer's live control.

use futures_util::StreamExt;
use onsale_kit::auth;
use onsale_proto::queue::v1::{
    BlockCustomerRequest, BlockCustomerResponse, CloseQueueRequest, CloseQueueResponse, GetQueueStatsRequest,
    GetQueueStatsResponse, OpenQueueRequest, OpenQueueResponse, PauseQueueRequest, PauseQueueResponse, Queue,
    ResumeQueueRequest, ResumeQueueResponse, UnblockCustomerRequest, UnblockCustomerResponse,
    UpdateQueuePolicyRequest, UpdateQueuePolicyResponse, WatchQueueStatsRequest, WatchQueueStatsResponse,
    queue_admin_service_server::QueueAdminService,
};
use onsale_storage::idempotency;
use onsale_types::OrganizerId;
use prost::Message;
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::Grpc;
use crate::convert::{
    requests::{self, Named, Steering},
    responses::stats,
};

#[tonic::async_trait]
impl QueueAdminService for Grpc {
    async fn open_queue(
        &self,
        request: Request<OpenQueueRequest>,
    ) -> Result<Response<OpenQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let steering = requests::open(request.get_ref(), self.app.now())?;
        let answer = |queue| OpenQueueResponse { queue: Some(queue) };
        self.steer("OpenQueue", organizer_id, steering, request.get_ref(), answer).await
    }

    async fn pause_queue(
        &self,
        request: Request<PauseQueueRequest>,
    ) -> Result<Response<PauseQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let steering = requests::pause(request.get_ref())?;
        let answer = |queue| PauseQueueResponse { queue: Some(queue) };
        self.steer("PauseQueue", organizer_id, steering, request.get_ref(), answer).await
    }

    async fn resume_queue(
        &self,
        request: Request<ResumeQueueRequest>,
    ) -> Result<Response<ResumeQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let steering = requests::resume(request.get_ref())?;
        let answer = |queue| ResumeQueueResponse { queue: Some(queue) };
        self.steer("ResumeQueue", organizer_id, steering, request.get_ref(), answer).await
    }

    async fn close_queue(
        &self,
        request: Request<CloseQueueRequest>,
    ) -> Result<Response<CloseQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let steering = requests::close(request.get_ref())?;
        let answer = |queue| CloseQueueResponse { queue: Some(queue) };
        self.steer("CloseQueue", organizer_id, steering, request.get_ref(), answer).await
    }

    async fn update_queue_policy(
        &self,
        request: Request<UpdateQueuePolicyRequest>,
    ) -> Result<Response<UpdateQueuePolicyResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let steering = requests::update_policy(request.get_ref())?;
        let answer = |queue| UpdateQueuePolicyResponse { queue: Some(queue) };
        self.steer("UpdateQueuePolicy", organizer_id, steering, request.get_ref(), answer).await
    }

    async fn get_queue_stats(
        &self,
        request: Request<GetQueueStatsRequest>,
    ) -> Result<Response<GetQueueStatsResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let event_id = requests::event_id(&request.get_ref().event_id)?;
        let taken = self.app.stats(organizer_id, event_id).await?;
        Ok(Response::new(stats::answer(&taken)))
    }

    async fn watch_queue_stats(
        &self,
        request: Request<WatchQueueStatsRequest>,
    ) -> Result<Response<BoxStream<WatchQueueStatsResponse>>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (event_id, interval) = requests::watch_stats(request.get_ref())?;
        let taken = self.app.watch_stats(organizer_id, event_id, interval).await?;
        let answers = taken.map(|taken| taken.map(|taken| stats::message(&taken)).map_err(Status::from));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn block_customer(
        &self,
        request: Request<BlockCustomerRequest>,
    ) -> Result<Response<BlockCustomerResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (Named { event_id, request_id }, customer_id) = requests::block(request.get_ref())?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("BlockCustomer", &caller, request_id, request.get_ref());
        let note = &request.get_ref().note;
        Ok(Response::new(self.app.block(organizer_id, event_id, customer_id, note, &once).await?))
    }

    async fn unblock_customer(
        &self,
        request: Request<UnblockCustomerRequest>,
    ) -> Result<Response<UnblockCustomerResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (Named { event_id, request_id }, customer_id) = requests::unblock(request.get_ref())?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("UnblockCustomer", &caller, request_id, request.get_ref());
        Ok(Response::new(self.app.unblock(organizer_id, event_id, customer_id, &once).await?))
    }
}

impl Grpc {
    /// The half that all controls have in common: do, answer.
    async fn steer<R: Message + Default>(
        &self,
        method: &'static str,
        organizer_id: OrganizerId,
        steering: Steering,
        body: &impl Message,
        answer: fn(Queue) -> R,
    ) -> Result<Response<R>, Status> {
        let Steering { event_id, request_id, control } = steering;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new(method, &caller, request_id, body);
        Ok(Response::new(self.app.control(organizer_id, event_id, &control, &once, answer).await?))
    }
}
