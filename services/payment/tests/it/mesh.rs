//! Payment's neighbors, faked: Claim, Inventory and Ticketing on one small gRPC server that does what it is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use onsale_kit::{
    error::{DOMAIN, Reason},
    tasks::Tasks,
};
use onsale_proto::{
    claim::v1::{
        Claim, ClaimState, ConfirmClaimRequest, ConfirmClaimResponse, ErrorReason as ClaimReason,
        ExtendClaimRequest, ExtendClaimResponse, GetClaimRequest, GetClaimResponse, ReleaseReason,
        claim_internal_service_server::{ClaimInternalService, ClaimInternalServiceServer},
        claim_service_server::{ClaimService, ClaimServiceServer},
    },
    inventory::v1::{
        Event, GetEventRequest, GetEventResponse,
        event_service_server::{EventService, EventServiceServer},
    },
    ticketing::v1::{
        ErrorReason as TicketingReason, VoidTicketsRequest, VoidTicketsResponse,
        ticket_internal_service_server::{TicketInternalService, TicketInternalServiceServer},
    },
    r#type::v1::{EventSummary, Money},
};
use onsale_types::{ClaimId, CustomerId, EventId, OrganizerId};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) const TOTAL: i64 = 4_000;
pub(crate) const EMAIL: &str = "ana@example.test";

/// How Claim answers ConfirmClaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Confirming {
    #[default]
    Serves,
    Rejects,
    PaidByAnother,
    AmountDiffers,
    Unreachable,
}

#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) claims: BTreeMap<String, Claim>,
    pub(crate) organizers: BTreeMap<String, OrganizerId>,
    pub(crate) confirming: Confirming,
    pub(crate) confirm_calls: u32,
    /// Payments that asked for more time for their claim.
    pub(crate) extended_by: Vec<String>,
    pub(crate) extending_fails: Option<Code>,
    pub(crate) extend_takes: Duration,
    pub(crate) voided: BTreeSet<String>,
    pub(crate) is_checked_in: bool,
    pub(crate) is_ticketing_away: bool,
    pub(crate) confirm_takes: Duration,
}

/// The neighbors. Clones share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Mesh {
    facts: Arc<Mutex<Facts>>,
    pub(crate) address: SocketAddr,
    _tasks: Tasks,
}

impl Mesh {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let mesh = Self { facts: Arc::default(), address, _tasks: tasks.clone() };
        let router = tonic::transport::Server::builder()
            .add_service(ClaimServiceServer::new(mesh.clone()))
            .add_service(ClaimInternalServiceServer::new(mesh.clone()))
            .add_service(EventServiceServer::new(mesh.clone()))
            .add_service(TicketInternalServiceServer::new(mesh.clone()));
        tasks.spawn("mesh", async move {
            router.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        mesh
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap()
    }

    /// A new claim of `customer`, to be paid within ten minutes.
    pub(crate) fn claim(&self, customer: CustomerId) -> ClaimId {
        let (id, event_id) = (ClaimId::generate(), EventId::generate());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let expire_time = prost_types::Timestamp { seconds: i64::try_from(now).unwrap() + 600, nanos: 0 };
        let claim = Claim {
            claim_id: id.to_string(),
            customer_id: customer.to_string(),
            event: Some(EventSummary {
                event_id: event_id.to_string(),
                name: "Derby".to_owned(),
                time_zone: "Europe/Zagreb".to_owned(),
                ..EventSummary::default()
            }),
            state: ClaimState::Claimed.into(),
            total: Some(Money { amount_minor: TOTAL, currency_code: "EUR".to_owned() }),
            buyer_email: EMAIL.to_owned(),
            buyer_locale: "hr".to_owned(),
            expire_time: Some(expire_time),
            ..Claim::default()
        };
        self.facts().claims.insert(id.to_string(), claim);
        id
    }

    /// Changes a claim.
    pub(crate) fn change(&self, id: ClaimId, change: impl FnOnce(&mut Claim)) {
        change(self.facts().claims.get_mut(&id.to_string()).unwrap());
    }

    pub(crate) fn release(&self, id: ClaimId) {
        self.change(id, |claim| {
            claim.set_state(ClaimState::Released);
            claim.expire_time = None;
        });
    }

    pub(crate) fn claim_state(&self, id: ClaimId) -> ClaimState {
        self.facts().claims[&id.to_string()].state()
    }
}

fn refuse(code: Code, reason: &'static str) -> Status {
    let details = ErrorDetails::with_error_info(Reason::from_proto(reason).as_str(), DOMAIN, []);
    Status::with_error_details(code, reason, details)
}

#[tonic::async_trait]
impl ClaimService for Mesh {
    async fn get_claim(
        &self,
        request: Request<GetClaimRequest>,
    ) -> Result<Response<GetClaimResponse>, Status> {
        let claim = self.facts().claims.get(&request.into_inner().claim_id).cloned();
        let missing = || refuse(Code::NotFound, ClaimReason::ClaimNotFound.as_str_name());
        Ok(Response::new(GetClaimResponse { claim: Some(claim.ok_or_else(missing)?) }))
    }
}

#[tonic::async_trait]
impl ClaimInternalService for Mesh {
    async fn confirm_claim(
        &self,
        request: Request<ConfirmClaimRequest>,
    ) -> Result<Response<ConfirmClaimResponse>, Status> {
        let request = request.into_inner();
        let takes = {
            let mut facts = self.facts();
            facts.confirm_calls += 1;
            facts.confirm_takes
        };
        tokio::time::sleep(takes).await;
        let mut facts = self.facts();
        let confirming = facts.confirming;
        let claim = facts.claims.get_mut(&request.claim_id);
        let claim = claim.ok_or_else(|| refuse(Code::NotFound, ClaimReason::ClaimNotFound.as_str_name()))?;
        let state = |reason: ClaimReason| Err(refuse(Code::FailedPrecondition, reason.as_str_name()));
        match confirming {
            Confirming::Unreachable => return Err(Status::unavailable("told so")),
            Confirming::PaidByAnother => return state(ClaimReason::ClaimPaidByAnother),
            Confirming::AmountDiffers => return state(ClaimReason::AmountMismatch),
            Confirming::Serves if request.amount != claim.total => return state(ClaimReason::AmountMismatch),
            Confirming::Serves => {
                claim.set_state(ClaimState::Confirmed);
                claim.payment_id = request.payment_id;
            }
            Confirming::Rejects => {
                claim.set_state(ClaimState::Released);
                claim.set_release_reason(ReleaseReason::Rejected);
            }
        }
        Ok(Response::new(ConfirmClaimResponse { claim: Some(claim.clone()) }))
    }

    async fn extend_claim(
        &self,
        request: Request<ExtendClaimRequest>,
    ) -> Result<Response<ExtendClaimResponse>, Status> {
        let request = request.into_inner();
        let takes = {
            let mut facts = self.facts();
            facts.extended_by.push(request.payment_id);
            facts.extend_takes
        };
        tokio::time::sleep(takes).await;
        let facts = self.facts();
        if let Some(code) = facts.extending_fails {
            return Err(Status::new(code, "told so"));
        }
        Ok(Response::new(ExtendClaimResponse { claim: facts.claims.get(&request.claim_id).cloned() }))
    }
}

#[tonic::async_trait]
impl EventService for Mesh {
    async fn get_event(
        &self,
        request: Request<GetEventRequest>,
    ) -> Result<Response<GetEventResponse>, Status> {
        let event_id = request.into_inner().event_id;
        let organizer = self.facts().organizers.get(&event_id).copied().unwrap_or_else(OrganizerId::generate);
        let event = Event { event_id, organizer_id: organizer.to_string(), ..Event::default() };
        Ok(Response::new(GetEventResponse { event: Some(event) }))
    }
}

#[tonic::async_trait]
impl TicketInternalService for Mesh {
    async fn void_tickets(
        &self,
        request: Request<VoidTicketsRequest>,
    ) -> Result<Response<VoidTicketsResponse>, Status> {
        let mut facts = self.facts();
        if facts.is_ticketing_away {
            return Err(Status::unavailable("told so"));
        }
        if facts.is_checked_in {
            return Err(refuse(Code::FailedPrecondition, TicketingReason::TicketCheckedIn.as_str_name()));
        }
        facts.voided.insert(request.into_inner().claim_id);
        Ok(Response::new(VoidTicketsResponse { void_count: 2 }))
    }
}
