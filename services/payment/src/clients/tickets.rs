//! Ticketing: tickets become void before their money goes back.

use onsale_kit::client::Channel;
use onsale_proto::ticketing::v1::{
    ErrorReason, VoidTicketsRequest, ticket_internal_service_client::TicketInternalServiceClient,
};
use onsale_types::{ClaimId, RequestId};

use super::neighbor::{NeighborError, has_reason};

/// Calls Ticketing. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Tickets {
    tickets: TicketInternalServiceClient<Channel>,
}

/// Why tickets could not become void.
#[derive(Debug, thiserror::Error)]
pub enum VoidError {
    /// Somebody went in with one.
    #[error("a ticket of the claim was checked in")]
    CheckedIn,
    /// Ticketing could not be asked.
    #[error(transparent)]
    Neighbor(#[from] NeighborError),
}

impl Tickets {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { tickets: TicketInternalServiceClient::new(channel) }
    }

    /// Makes the tickets of a claim void; it gets none later either. Idempotent.
    pub async fn void(&self, claim: ClaimId) -> Result<(), VoidError> {
        let request = VoidTicketsRequest {
            request_id: RequestId::derive(claim.as_uuid(), "void-tickets").to_string(),
            claim_id: claim.to_string(),
        };
        match self.tickets.clone().void_tickets(request).await {
            Ok(_) => Ok(()),
            Err(status) if has_reason(&status, ErrorReason::TicketCheckedIn.as_str_name()) => {
                Err(VoidError::CheckedIn)
            }
            Err(status) => Err(NeighborError::status("void the tickets")(status).into()),
        }
    }
}
