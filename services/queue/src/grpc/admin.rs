//! `QueueAdminService`: the interface for organizers.

use futures_util::StreamExt;
use onsale_kit::auth;
use onsale_proto::queue::v1::{
    BlockCustomerRequest, BlockCustomerResponse, CloseQueueRequest, CloseQueueResponse, GetQueueStatsRequest,
    GetQueueStatsResponse, OpenQueueRequest, OpenQueueResponse, PauseQueueRequest, PauseQueueResponse,
    ResumeQueueRequest, ResumeQueueResponse, UnblockCustomerRequest, UnblockCustomerResponse,
    UpdateQueuePolicyRequest, UpdateQueuePolicyResponse, WatchQueueStatsRequest, WatchQueueStatsResponse,
    queue_admin_service_server::QueueAdminService,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::Grpc;
use crate::convert::{
    requests::{self as common, admin as requests},
    responses::admin as responses,
};

#[tonic::async_trait]
impl QueueAdminService for Grpc {
    async fn open_queue(
        &self,
        request: Request<OpenQueueRequest>,
    ) -> Result<Response<OpenQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (command, once) = requests::open_queue(&caller, request.get_ref(), self.app.now())?;
        let answer = self.app.open_queue(organizer_id, command, &once).await?;
        Ok(Response::new(responses::open_queue(answer)?))
    }

    async fn pause_queue(
        &self,
        request: Request<PauseQueueRequest>,
    ) -> Result<Response<PauseQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (command, once) = requests::pause_queue(&caller, request.get_ref())?;
        let answer = self.app.pause_queue(organizer_id, &command, &once).await?;
        Ok(Response::new(responses::pause_queue(answer)?))
    }

    async fn resume_queue(
        &self,
        request: Request<ResumeQueueRequest>,
    ) -> Result<Response<ResumeQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (event_id, once) = requests::resume_queue(&caller, request.get_ref())?;
        let answer = self.app.resume_queue(organizer_id, event_id, &once).await?;
        Ok(Response::new(responses::resume_queue(answer)?))
    }

    async fn close_queue(
        &self,
        request: Request<CloseQueueRequest>,
    ) -> Result<Response<CloseQueueResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (command, once) = requests::close_queue(&caller, request.get_ref())?;
        let answer = self.app.close_queue(organizer_id, &command, &once).await?;
        Ok(Response::new(responses::close_queue(answer)?))
    }

    async fn update_queue_policy(
        &self,
        request: Request<UpdateQueuePolicyRequest>,
    ) -> Result<Response<UpdateQueuePolicyResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let ((event_id, change), once) = requests::update_queue_policy(&caller, request.get_ref())?;
        let answer = self.app.update_queue_policy(organizer_id, event_id, &change, &once).await?;
        Ok(Response::new(responses::update_queue_policy(answer)?))
    }

    async fn get_queue_stats(
        &self,
        request: Request<GetQueueStatsRequest>,
    ) -> Result<Response<GetQueueStatsResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let event_id = common::event_id(&request.get_ref().event_id)?;
        let stats = self.app.get_queue_stats(organizer_id, event_id).await?;
        Ok(Response::new(responses::get_queue_stats(&stats)))
    }

    async fn watch_queue_stats(
        &self,
        request: Request<WatchQueueStatsRequest>,
    ) -> Result<Response<BoxStream<WatchQueueStatsResponse>>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (event_id, interval) = requests::watch_queue_stats(request.get_ref())?;
        let stats = self.app.watch_queue_stats(organizer_id, event_id, interval).await?;
        let messages =
            stats.map(|stats| stats.map(|stats| responses::watch_queue_stats(&stats)).map_err(Status::from));
        Ok(Response::new(Box::pin(messages)))
    }

    async fn block_customer(
        &self,
        request: Request<BlockCustomerRequest>,
    ) -> Result<Response<BlockCustomerResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (event_id, customer_id, once) = requests::block_customer(&caller, request.get_ref())?;
        let note = &request.get_ref().note;
        let answer = self.app.block_customer(organizer_id, event_id, customer_id, note, &once).await?;
        Ok(Response::new(responses::block_customer(answer)?))
    }

    async fn unblock_customer(
        &self,
        request: Request<UnblockCustomerRequest>,
    ) -> Result<Response<UnblockCustomerResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let caller = organizer_id.to_string();
        let (event_id, customer_id, once) = requests::unblock_customer(&caller, request.get_ref())?;
        let answer = self.app.unblock_customer(organizer_id, event_id, customer_id, &once).await?;
        Ok(Response::new(responses::unblock_customer(answer)?))
    }
}
