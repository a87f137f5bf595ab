//! `QueueAdminService`: an organizer's live control.

use onsale_kit::auth;
use onsale_proto::queue::v1::{
    CloseQueueRequest, CloseQueueResponse, OpenQueueRequest, OpenQueueResponse, PauseQueueRequest,
    PauseQueueResponse, Queue, ResumeQueueRequest, ResumeQueueResponse, UpdateQueuePolicyRequest,
    UpdateQueuePolicyResponse, queue_admin_service_server::QueueAdminService,
};
use onsale_storage::idempotency;
use onsale_types::OrganizerId;
use prost::Message;
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert::requests::{self, Steering};

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
