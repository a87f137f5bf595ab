//! `QuotaService`.

use onsale_kit::auth;
use onsale_proto::inventory::v1::{self as pb, quota_service_server::QuotaService};
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert::{requests, responses};

#[tonic::async_trait]
impl QuotaService for Grpc {
    async fn create_quota(
        &self,
        request: Request<pb::CreateQuotaRequest>,
    ) -> Result<Response<pb::CreateQuotaResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::create_quota(&body)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::CREATE_QUOTA, &caller, command.request_id, &body);
        let answer = self.app.create_quota(&request, organizer_id, &command.quota).await?;
        Ok(Response::new(responses::create_quota(answer)?))
    }

    async fn invite_to_quota(
        &self,
        request: Request<pb::InviteToQuotaRequest>,
    ) -> Result<Response<pb::InviteToQuotaResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::invite_to_quota(&body)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::INVITE_TO_QUOTA, &caller, command.request_id, &body);
        let answer = self.app.invite_to_quota(&request, organizer_id, command.quota_id, &command.invitees);
        Ok(Response::new(responses::invite_to_quota(answer.await?)?))
    }

    async fn list_quotas(
        &self,
        request: Request<pb::ListQuotasRequest>,
    ) -> Result<Response<pb::ListQuotasResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (list, query) = requests::list_quotas(request.get_ref())?;
        let page = self.app.list_quotas(organizer_id, &list).await?;
        Ok(Response::new(responses::list_quotas(&page, &query)))
    }

    async fn accept_invitation(
        &self,
        request: Request<pb::AcceptInvitationRequest>,
    ) -> Result<Response<pb::AcceptInvitationResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let body = request.into_inner();
        let command = requests::accept_invitation(&body)?;
        let caller = customer_id.to_string();
        let request = requests::identify(&requests::ACCEPT_INVITATION, &caller, command.request_id, &body);
        let answer = self.app.accept_invitation(&request, customer_id, command.token.expose());
        Ok(Response::new(responses::accept_invitation(answer.await?)?))
    }
}
