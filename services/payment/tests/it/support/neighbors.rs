//! Fake neighbors of Payment: Claim, Inventory and Ticketing on one gRPC server whose behavior a test controls.

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

/// Claim's response to `ConfirmClaim`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConfirmBehavior {
    #[default]
    Confirms,
    Rejects,
    PaidByAnother,
    AmountDiffers,
    Unreachable,
}

#[derive(Debug, Default)]
pub(crate) struct NeighborState {
    pub(crate) claims: BTreeMap<String, Claim>,
    pub(crate) organizers: BTreeMap<String, OrganizerId>,
    pub(crate) confirm_behavior: ConfirmBehavior,
    pub(crate) confirm_calls: u32,
    /// Ids of the payments that asked to extend their claim, in order.
    pub(crate) extended_by: Vec<String>,
    pub(crate) extend_error: Option<Code>,
    pub(crate) extend_delay: Duration,
    pub(crate) voided_claims: BTreeSet<String>,
    pub(crate) is_checked_in: bool,
    pub(crate) is_ticketing_unavailable: bool,
    pub(crate) confirm_delay: Duration,
}

/// Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct Neighbors {
    state: Arc<Mutex<NeighborState>>,
    pub(crate) address: SocketAddr,
    _tasks: Tasks,
}

impl Neighbors {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tasks = Tasks::new();
        let neighbors = Self { state: Arc::default(), address, _tasks: tasks.clone() };
        let router = tonic::transport::Server::builder()
            .add_service(ClaimServiceServer::new(neighbors.clone()))
            .add_service(ClaimInternalServiceServer::new(neighbors.clone()))
            .add_service(EventServiceServer::new(neighbors.clone()))
            .add_service(TicketInternalServiceServer::new(neighbors.clone()));
        tasks.spawn("neighbors", async move {
            router.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        neighbors
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, NeighborState> {
        self.state.lock().unwrap()
    }

    /// Creates a claim that expires in ten minutes.
    pub(crate) fn claim(&self, customer_id: CustomerId) -> ClaimId {
        let (claim_id, event_id) = (ClaimId::generate(), EventId::generate());
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let expire_time = prost_types::Timestamp { seconds: i64::try_from(now).unwrap() + 600, nanos: 0 };
        let claim = Claim {
            claim_id: claim_id.to_string(),
            customer_id: customer_id.to_string(),
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
        self.state().claims.insert(claim_id.to_string(), claim);
        claim_id
    }

    pub(crate) fn change(&self, claim_id: ClaimId, change: impl FnOnce(&mut Claim)) {
        change(self.state().claims.get_mut(&claim_id.to_string()).unwrap());
    }

    pub(crate) fn release(&self, claim_id: ClaimId) {
        self.change(claim_id, |claim| {
            claim.set_state(ClaimState::Released);
            claim.expire_time = None;
        });
    }

    pub(crate) fn claim_state(&self, claim_id: ClaimId) -> ClaimState {
        self.state().claims[&claim_id.to_string()].state()
    }
}

fn refuse(code: Code, reason: &'static str) -> Status {
    let details = ErrorDetails::with_error_info(Reason::from_proto(reason).as_str(), DOMAIN, []);
    Status::with_error_details(code, reason, details)
}

#[tonic::async_trait]
impl ClaimService for Neighbors {
    async fn get_claim(
        &self,
        request: Request<GetClaimRequest>,
    ) -> Result<Response<GetClaimResponse>, Status> {
        let claim = self.state().claims.get(&request.into_inner().claim_id).cloned();
        let missing = || refuse(Code::NotFound, ClaimReason::ClaimNotFound.as_str_name());
        Ok(Response::new(GetClaimResponse { claim: Some(claim.ok_or_else(missing)?) }))
    }
}

#[tonic::async_trait]
impl ClaimInternalService for Neighbors {
    async fn confirm_claim(
        &self,
        request: Request<ConfirmClaimRequest>,
    ) -> Result<Response<ConfirmClaimResponse>, Status> {
        let request = request.into_inner();
        let delay = {
            let mut state = self.state();
            state.confirm_calls += 1;
            state.confirm_delay
        };
        tokio::time::sleep(delay).await;
        let mut state = self.state();
        let confirm_behavior = state.confirm_behavior;
        let claim = state.claims.get_mut(&request.claim_id);
        let claim = claim.ok_or_else(|| refuse(Code::NotFound, ClaimReason::ClaimNotFound.as_str_name()))?;
        let precondition = |reason: ClaimReason| Err(refuse(Code::FailedPrecondition, reason.as_str_name()));
        match confirm_behavior {
            ConfirmBehavior::Unreachable => return Err(Status::unavailable("set by the test")),
            ConfirmBehavior::PaidByAnother => return precondition(ClaimReason::ClaimPaidByAnother),
            ConfirmBehavior::AmountDiffers => return precondition(ClaimReason::AmountMismatch),
            ConfirmBehavior::Confirms if request.amount != claim.total => {
                return precondition(ClaimReason::AmountMismatch);
            }
            ConfirmBehavior::Confirms => {
                claim.set_state(ClaimState::Confirmed);
                claim.payment_id = request.payment_id;
            }
            ConfirmBehavior::Rejects => {
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
        let delay = {
            let mut state = self.state();
            state.extended_by.push(request.payment_id);
            state.extend_delay
        };
        tokio::time::sleep(delay).await;
        let state = self.state();
        if let Some(code) = state.extend_error {
            return Err(Status::new(code, "set by the test"));
        }
        Ok(Response::new(ExtendClaimResponse { claim: state.claims.get(&request.claim_id).cloned() }))
    }
}

#[tonic::async_trait]
impl EventService for Neighbors {
    async fn get_event(
        &self,
        request: Request<GetEventRequest>,
    ) -> Result<Response<GetEventResponse>, Status> {
        let event_id = request.into_inner().event_id;
        let organizer = self.state().organizers.get(&event_id).copied().unwrap_or_else(OrganizerId::generate);
        let event = Event { event_id, organizer_id: organizer.to_string(), ..Event::default() };
        Ok(Response::new(GetEventResponse { event: Some(event) }))
    }
}

#[tonic::async_trait]
impl TicketInternalService for Neighbors {
    async fn void_tickets(
        &self,
        request: Request<VoidTicketsRequest>,
    ) -> Result<Response<VoidTicketsResponse>, Status> {
        let mut state = self.state();
        if state.is_ticketing_unavailable {
            return Err(Status::unavailable("set by the test"));
        }
        if state.is_checked_in {
            return Err(refuse(Code::FailedPrecondition, TicketingReason::TicketCheckedIn.as_str_name()));
        }
        state.voided_claims.insert(request.into_inner().claim_id);
        Ok(Response::new(VoidTicketsResponse { void_count: 2 }))
    }
}
