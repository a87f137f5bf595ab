//! The gRPC face of Ticketing: who, what, do, answer. No rule of its own.

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
use onsale_storage::idempotency;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    app::{App, check_in_ticket::Scanner},
    convert::{requests as tickets, responses as generations},
    domain::document::Language,
};

type Answer<T> = Result<Response<T>, Status>;

/// Serves the contracts of Ticketing. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[derive(Debug)]
pub struct Grpc {
    /// What it serves.
    pub app: Arc<App>,
}

#[tonic::async_trait]
impl TicketService for Grpc {
    async fn list_tickets(
        &self,
        request: Request<pb::ListTicketsRequest>,
    ) -> Answer<pb::ListTicketsResponse> {
        let customer = auth::identity(&request)?.customer_id();
        let list = tickets::list_tickets(customer, request.get_ref())?;
        let page = self.app.list_tickets(customer, &list.filter, list.after, list.size).await?;
        Ok(Response::new(tickets::ticket_page(&page, &list.query)))
    }

    async fn get_ticket(&self, request: Request<pb::GetTicketRequest>) -> Answer<pb::GetTicketResponse> {
        let identity = auth::identity(&request)?;
        let (ticket_id, kinds) = tickets::get_ticket(request.get_ref())?;
        let language = Language::of(identity.locale.as_deref());
        let got = self.app.get_ticket(identity.customer_id(), ticket_id, &kinds, language);
        let (ticket, documents) = got.await?;
        Ok(Response::new(pb::GetTicketResponse {
            ticket: Some(tickets::ticket_of_holder(&ticket)),
            documents: documents.into_iter().map(tickets::document_to_pb).collect(),
        }))
    }

    async fn check_in_ticket(
        &self,
        request: Request<pb::CheckInTicketRequest>,
    ) -> Answer<pb::CheckInTicketResponse> {
        let identity = auth::identity(&request)?;
        let (request_id, scan) = tickets::check_in_ticket(request.get_ref(), self.app.clock.now())?;
        let caller = caller(identity);
        let once = idempotency::Request::new("CheckInTicket", &caller, request_id, request.get_ref());
        Ok(Response::new(self.app.check_in_ticket(scanner(identity), &once, &scan).await?))
    }
}

#[tonic::async_trait]
impl GenerationService for Grpc {
    async fn create_generation(
        &self,
        request: Request<pb::CreateGenerationRequest>,
    ) -> Answer<pb::CreateGenerationResponse> {
        let identity = auth::identity(&request)?;
        let (request_id, event_id) = generations::create_generation(request.get_ref())?;
        let caller = caller(identity);
        let once = idempotency::Request::new("CreateGeneration", &caller, request_id, request.get_ref());
        Ok(Response::new(self.app.create_generation(identity.organizer_id(), &once, event_id).await?))
    }

    async fn get_generation(
        &self,
        request: Request<pb::GetGenerationRequest>,
    ) -> Answer<pb::GetGenerationResponse> {
        let organizer = auth::identity(&request)?.organizer_id();
        let lookup = generations::get_generation(request.get_ref())?;
        let generation = self.app.get_generation(organizer, lookup).await?;
        let generation = Some(generations::generation_to_pb(&generation));
        Ok(Response::new(pb::GetGenerationResponse { generation }))
    }

    async fn watch_generation(
        &self,
        request: Request<pb::WatchGenerationRequest>,
    ) -> Answer<BoxStream<pb::WatchGenerationResponse>> {
        let organizer = auth::identity(&request)?.organizer_id();
        let lookup = generations::watch_generation(request.get_ref())?;
        let now = self.app.get_generation(organizer, lookup).await?;
        let updates = self.app.watch_generation(now).map(|update| {
            let generation = Some(generations::generation_to_pb(&update?));
            Ok(pb::WatchGenerationResponse { generation })
        });
        Ok(Response::new(Box::pin(updates)))
    }
}

#[tonic::async_trait]
impl TicketInternalService for Grpc {
    async fn issue_tickets(
        &self,
        request: Request<pb::IssueTicketsRequest>,
    ) -> Answer<pb::IssueTicketsResponse> {
        let caller = caller(auth::identity(&request)?);
        let (request_id, order) = tickets::issue_tickets(request.get_ref().clone())?;
        let once = idempotency::Request::new("IssueTickets", &caller, request_id, request.get_ref());
        Ok(Response::new(self.app.issue_tickets(&once, &order).await?))
    }

    async fn void_tickets(
        &self,
        request: Request<pb::VoidTicketsRequest>,
    ) -> Answer<pb::VoidTicketsResponse> {
        let caller = caller(auth::identity(&request)?);
        let (request_id, claim_id) = tickets::void_tickets(request.get_ref())?;
        let once = idempotency::Request::new("VoidTickets", &caller, request_id, request.get_ref());
        Ok(Response::new(self.app.void_tickets(&once, claim_id).await?))
    }
}

/// Who asks, for the memory of answered requests: a service by its name, a person by issuer and subject.
fn caller(identity: &Identity) -> String {
    format!("{} {}", identity.issuer, identity.subject)
}

fn scanner(identity: &Identity) -> Scanner {
    if identity.roles.contains(Role::Staff) {
        Scanner::Staff
    } else {
        Scanner::Organizer(identity.organizer_id())
    }
}
