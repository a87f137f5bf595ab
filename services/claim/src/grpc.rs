//! gRPC handlers of Claim. Each identifies the caller, reads the request, runs the use case and encodes the response.

use std::sync::Arc;

use onsale_kit::auth;
use onsale_proto::{
    auth::v1::Role,
    claim::v1::{
        self as pb, claim_internal_service_server::ClaimInternalService, claim_service_server::ClaimService,
    },
};
use tonic::{Request, Response, Status};

use crate::{
    app::App,
    convert::{requests, responses},
};

#[derive(Debug)]
pub(crate) struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl ClaimService for Grpc {
    async fn create_claim(
        &self,
        request: Request<pb::CreateClaimRequest>,
    ) -> Result<Response<pb::CreateClaimResponse>, Status> {
        let identity = auth::identity(&request)?;
        let command = requests::create_claim(identity, request.get_ref())?;
        let claim = self.app.create_claim(command).await?;
        Ok(Response::new(responses::create_claim(&claim)))
    }

    async fn get_claim(
        &self,
        request: Request<pb::GetClaimRequest>,
    ) -> Result<Response<pb::GetClaimResponse>, Status> {
        let identity = auth::identity(&request)?;
        let only_of = (!identity.roles.contains(Role::Service)).then(|| identity.customer_id());
        let claim_id = requests::get_claim(request.get_ref())?;
        let claim = self.app.get_claim(claim_id, only_of).await?;
        Ok(Response::new(responses::get_claim(&claim)))
    }

    async fn list_claims(
        &self,
        request: Request<pb::ListClaimsRequest>,
    ) -> Result<Response<pb::ListClaimsResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let query = requests::list_claims(customer_id, request.get_ref())?;
        let claims = self.app.list_claims(&query.filter).await?;
        Ok(Response::new(responses::list_claims(&claims, &query)))
    }

    async fn release_claim(
        &self,
        request: Request<pb::ReleaseClaimRequest>,
    ) -> Result<Response<pb::ReleaseClaimResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let caller = customer_id.to_string();
        let (claim_id, idempotent) = requests::release_claim(&caller, request.get_ref())?;
        let answer = Box::pin(self.app.release_claim(customer_id, claim_id, &idempotent)).await?;
        Ok(Response::new(responses::release_claim(answer)?))
    }
}

#[tonic::async_trait]
impl ClaimInternalService for Grpc {
    async fn confirm_claim(
        &self,
        request: Request<pb::ConfirmClaimRequest>,
    ) -> Result<Response<pb::ConfirmClaimResponse>, Status> {
        let caller = &auth::identity(&request)?.subject;
        let (command, idempotent) = requests::confirm_claim(caller, request.get_ref())?;
        let answer = Box::pin(self.app.confirm_claim_once(command, &idempotent)).await?;
        Ok(Response::new(responses::confirm_claim(answer)?))
    }

    async fn extend_claim(
        &self,
        request: Request<pb::ExtendClaimRequest>,
    ) -> Result<Response<pb::ExtendClaimResponse>, Status> {
        let caller = &auth::identity(&request)?.subject;
        let (command, idempotent) = requests::extend_claim(caller, request.get_ref())?;
        let answer = self.app.extend_claim(command, &idempotent).await?;
        Ok(Response::new(responses::extend_claim(answer)?))
    }
}
