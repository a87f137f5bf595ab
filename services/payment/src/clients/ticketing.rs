//! Client of Ticketing: voids the tickets of a claim before its money is refunded.

use onsale_kit::client::Channel;
use onsale_proto::ticketing::v1::{ErrorReason, ticket_internal_service_client::TicketInternalServiceClient};
use onsale_types::ClaimId;

use super::neighbor::{NeighborError, has_reason};
use crate::convert::clients as convert;

/// Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct TicketingClient {
    tickets: TicketInternalServiceClient<Channel>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum VoidError {
    #[error("a ticket of the claim was checked in")]
    CheckedIn,
    #[error(transparent)]
    Neighbor(#[from] NeighborError),
}

impl TicketingClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self { tickets: TicketInternalServiceClient::new(channel) }
    }

    /// Voids the tickets of a claim; none can be issued for it afterwards. Idempotent.
    pub(crate) async fn void_tickets(&self, claim_id: ClaimId) -> Result<(), VoidError> {
        match self.tickets.clone().void_tickets(convert::void_tickets(claim_id)).await {
            Ok(_) => Ok(()),
            Err(status) if has_reason(&status, ErrorReason::TicketCheckedIn.as_str_name()) => {
                Err(VoidError::CheckedIn)
            }
            Err(status) => Err(NeighborError::status("void the tickets")(status).into()),
        }
    }
}
