//! `QuotaService`.

use onsale_kit::auth;
use onsale_proto::inventory::v1::{self as pb, quota_service_server::QuotaService};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status};

use super::Grpc;
use crate::convert;

#[tonic::async_trait]
impl QuotaService for Grpc {
    async fn create_quota(
        &self,
        request: Request<pb::CreateQuotaRequest>,
    ) -> Result<Response<pb::CreateQuotaResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::create_quota(&body)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("CreateQuota", &caller, command.request_id, &body);
        Ok(Response::new(self.app.create_quota(&once, organizer_id, &command.new).await?))
    }

    async fn invite_to_quota(
        &self,
        request: Request<pb::InviteToQuotaRequest>,
    ) -> Result<Response<pb::InviteToQuotaResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::invite_to_quota(&body)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("InviteToQuota", &caller, command.request_id, &body);
        let answer = self.app.invite_to_quota(&once, organizer_id, command.quota_id, &command.invitees);
        Ok(Response::new(answer.await?))
    }

    async fn list_quotas(
        &self,
        request: Request<pb::ListQuotasRequest>,
    ) -> Result<Response<pb::ListQuotasResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (list, query) = convert::list_quotas(request.get_ref())?;
        let page = self.app.list_quotas(organizer_id, &list).await?;
        Ok(Response::new(convert::listed_quotas(&page, &query)))
    }

    async fn accept_invitation(
        &self,
        request: Request<pb::AcceptInvitationRequest>,
    ) -> Result<Response<pb::AcceptInvitationResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let body = request.into_inner();
        let command = convert::accept_invitation(&body)?;
        let caller = customer_id.to_string();
        let once = idempotency::Request::new("AcceptInvitation", &caller, command.request_id, &body);
        let answer = self.app.accept_invitation(&once, customer_id, command.token.expose());
        Ok(Response::new(answer.await?))
    }
}
