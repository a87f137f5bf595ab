//! `QueueInternalService`: the interface for Claim.

use onsale_kit::auth;
use onsale_proto::queue::v1::{
    CompleteTurnRequest, CompleteTurnResponse, ValidateTurnRequest, ValidateTurnResponse,
    queue_internal_service_server::QueueInternalService,
};
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert::{requests, responses};

#[tonic::async_trait]
impl QueueInternalService for Grpc {
    async fn validate_turn(
        &self,
        request: Request<ValidateTurnRequest>,
    ) -> Result<Response<ValidateTurnResponse>, Status> {
        let turn = requests::validate_turn(request.get_ref())?;
        let valid = self.app.validate_turn(turn).await?;
        Ok(Response::new(responses::validate_turn(valid)))
    }

    async fn complete_turn(
        &self,
        request: Request<CompleteTurnRequest>,
    ) -> Result<Response<CompleteTurnResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let (turn, claim_id, once) = requests::complete_turn(&caller, request.get_ref())?;
        let completed = self.app.complete_turn(turn, claim_id, &once).await?;
        Ok(Response::new(responses::complete_turn(completed)?))
    }
}
