//! gRPC handlers of Ticketing: authenticate, convert the request, run the use case, convert the result.

use std::sync::Arc;

use futures_util::StreamExt;
use onsale_kit::auth::{self, Identity};
use onsale_proto::{
    auth::v1::Role,
    ticketing::v1::{
        self as pb, generation_service_server::GenerationService,
        ticket_internal_service_server::TicketInternalService, ticket_service_server::TicketService,
    },
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    app::App,
    convert::{requests, responses},
    domain::{check_in::Scanner, document::Language},
};

/// A method that is not implemented here returns UNIMPLEMENTED, by the generated default (ADR 0003).
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
impl TicketService for Grpc {
    async fn list_tickets(
        &self,
        request: Request<pb::ListTicketsRequest>,
    ) -> Result<Response<pb::ListTicketsResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let list = requests::list_tickets(customer_id, request.get_ref())?;
        let page = self.app.list_tickets(&list).await?;
        Ok(Response::new(responses::list_tickets(&page, &list.query)))
    }

    async fn get_ticket(
        &self,
        request: Request<pb::GetTicketRequest>,
    ) -> Result<Response<pb::GetTicketResponse>, Status> {
        let identity = auth::identity(&request)?;
        let (customer_id, language) = (identity.customer_id(), Language::of(identity.locale.as_deref()));
        let (ticket_id, kinds) = requests::get_ticket(request.get_ref())?;
        let (ticket, documents) = self.app.get_ticket(customer_id, ticket_id, &kinds, language).await?;
        Ok(Response::new(responses::get_ticket(&ticket, documents)))
    }

    async fn check_in_ticket(
        &self,
        request: Request<pb::CheckInTicketRequest>,
    ) -> Result<Response<pb::CheckInTicketResponse>, Status> {
        let identity = auth::identity(&request)?;
        let (caller, scanner) = (caller(identity), scanner(identity));
        let now = self.app.clock.now();
        let (scan, idempotent) = requests::check_in_ticket(&caller, request.get_ref(), now)?;
        let answer = self.app.check_in_ticket(scanner, &idempotent, &scan).await?;
        Ok(Response::new(responses::check_in_ticket(answer)?))
    }
}

#[tonic::async_trait]
impl GenerationService for Grpc {
    async fn create_generation(
        &self,
        request: Request<pb::CreateGenerationRequest>,
    ) -> Result<Response<pb::CreateGenerationResponse>, Status> {
        let identity = auth::identity(&request)?;
        let (caller, organizer_id) = (caller(identity), identity.organizer_id());
        let (event_id, idempotent) = requests::create_generation(&caller, request.get_ref())?;
        let answer = self.app.create_generation(organizer_id, &idempotent, event_id).await?;
        Ok(Response::new(responses::create_generation(answer)?))
    }

    async fn get_generation(
        &self,
        request: Request<pb::GetGenerationRequest>,
    ) -> Result<Response<pb::GetGenerationResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let lookup = requests::get_generation(request.get_ref())?;
        let generation = self.app.get_generation(organizer_id, lookup).await?;
        Ok(Response::new(responses::get_generation(&generation)))
    }

    async fn watch_generation(
        &self,
        request: Request<pb::WatchGenerationRequest>,
    ) -> Result<Response<BoxStream<pb::WatchGenerationResponse>>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let lookup = requests::watch_generation(request.get_ref())?;
        let first = self.app.get_generation(organizer_id, lookup).await?;
        let versions = self.app.watch_generation(first);
        let messages = versions.map(|generation| Ok(responses::watch_generation(&generation?)));
        Ok(Response::new(Box::pin(messages)))
    }
}

#[tonic::async_trait]
impl TicketInternalService for Grpc {
    async fn issue_tickets(
        &self,
        request: Request<pb::IssueTicketsRequest>,
    ) -> Result<Response<pb::IssueTicketsResponse>, Status> {
        let caller = caller(auth::identity(&request)?);
        let (order, idempotent) = requests::issue_tickets(&caller, request.get_ref())?;
        let answer = self.app.issue_tickets(&idempotent, &order).await?;
        Ok(Response::new(responses::issue_tickets(answer)?))
    }

    async fn void_tickets(
        &self,
        request: Request<pb::VoidTicketsRequest>,
    ) -> Result<Response<pb::VoidTicketsResponse>, Status> {
        let caller = caller(auth::identity(&request)?);
        let (claim_id, idempotent) = requests::void_tickets(&caller, request.get_ref())?;
        let answer = self.app.void_tickets(&idempotent, claim_id).await?;
        Ok(Response::new(responses::void_tickets(answer)?))
    }
}

/// Returns the caller to whom an idempotent request belongs.
fn caller(identity: &Identity) -> String {
    format!("{} {}", identity.issuer, identity.subject)
}

/// Returns the caller's role at the gate. Staff outranks organizer.
fn scanner(identity: &Identity) -> Scanner {
    if identity.roles.contains(Role::Staff) {
        Scanner::Staff
    } else {
        Scanner::Organizer(identity.organizer_id())
    }
}
