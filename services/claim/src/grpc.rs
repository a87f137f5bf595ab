//! The gRPC face of Claim: who, what, do, answer. No rule of its own.

use std::sync::Arc;

use onsale_kit::auth::{self, Identity};
use onsale_proto::{
    auth::v1::Role,
    claim::v1::{
        self as pb, claim_internal_service_server::ClaimInternalService, claim_service_server::ClaimService,
    },
};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status};

use crate::{app::App, convert, domain::Buyer};

/// Serves the contracts of Claim.
#[derive(Debug)]
pub struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    /// Serves `app`.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
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
        let customer = identity.customer_id();
        let buyer = buyer(identity);
        let command = convert::create_claim(customer, buyer, request.get_ref())?;
        let claim = self.app.create_claim(command).await?;
        Ok(Response::new(pb::CreateClaimResponse { claim: Some(convert::claim_to_pb(&claim)) }))
    }

    async fn get_claim(
        &self,
        request: Request<pb::GetClaimRequest>,
    ) -> Result<Response<pb::GetClaimResponse>, Status> {
        let identity = auth::identity(&request)?;
        let only_of = (!identity.roles.contains(Role::Service)).then(|| identity.customer_id());
        let claim = convert::get_claim(request.get_ref())?;
        let claim = self.app.get_claim(claim, only_of).await?;
        Ok(Response::new(pb::GetClaimResponse { claim: Some(convert::claim_to_pb(&claim)) }))
    }

    async fn list_claims(
        &self,
        request: Request<pb::ListClaimsRequest>,
    ) -> Result<Response<pb::ListClaimsResponse>, Status> {
        let customer = auth::identity(&request)?.customer_id();
        let query = convert::list_claims(customer, request.get_ref())?;
        let claims = self.app.list_claims(&query.filter).await?;
        Ok(Response::new(convert::claims_page(&claims, &query)))
    }

    async fn release_claim(
        &self,
        request: Request<pb::ReleaseClaimRequest>,
    ) -> Result<Response<pb::ReleaseClaimResponse>, Status> {
        let customer = auth::identity(&request)?.customer_id();
        let body = request.get_ref();
        let (request_id, claim) = convert::release_claim(body)?;
        let caller = customer.to_string();
        let once = idempotency::Request::new("ReleaseClaim", &caller, request_id, body);
        let answer = Box::pin(self.app.release_claim(customer, claim, &once)).await?;
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl ClaimInternalService for Grpc {
    async fn confirm_claim(
        &self,
        request: Request<pb::ConfirmClaimRequest>,
    ) -> Result<Response<pb::ConfirmClaimResponse>, Status> {
        let caller = &auth::identity(&request)?.subject;
        let body = request.get_ref();
        let (request_id, command) = convert::confirm_claim(body)?;
        let once = idempotency::Request::new("ConfirmClaim", caller, request_id, body);
        let answer = Box::pin(self.app.confirm_claim_once(command, &once)).await?;
        Ok(Response::new(answer))
    }

    async fn extend_claim(
        &self,
        request: Request<pb::ExtendClaimRequest>,
    ) -> Result<Response<pb::ExtendClaimResponse>, Status> {
        let caller = &auth::identity(&request)?.subject;
        let body = request.get_ref();
        let (request_id, command) = convert::extend_claim(body)?;
        let once = idempotency::Request::new("ExtendClaim", caller, request_id, body);
        let answer = self.app.extend_claim(command, &once).await?;
        Ok(Response::new(answer))
    }
}

/// Who buys; none without a verified address.
fn buyer(identity: &Identity) -> Option<Buyer> {
    let email = identity.email.clone().filter(|email| !email.is_empty())?;
    Some(Buyer { email, locale: identity.locale.clone().unwrap_or_default() })
}
