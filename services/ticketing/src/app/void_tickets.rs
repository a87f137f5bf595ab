//! Makes the tickets of a claim void, because its money goes back; and keeps it from getting any later.

use onsale_proto::ticketing::v1 as pb;
use onsale_storage::{
    idempotency::{self, Request},
    postgres::Transaction,
};
use onsale_types::ClaimId;

use super::App;
use crate::{
    domain::{order::IssuanceState, ticket::TicketState},
    error::Error,
    store::{issuances, tickets},
};

impl App {
    /// Voids all tickets of the claim, or none if somebody went in with one.
    pub async fn void_tickets(
        &self,
        request: &Request<'_>,
        claim_id: ClaimId,
    ) -> Result<pb::VoidTicketsResponse, Error> {
        let answer = self.stores.postgres.transaction("void tickets", |transaction| async move {
            idempotency::once(&transaction, request, void(&transaction, claim_id)).await
        });
        answer.await
    }
}

async fn void(transaction: &Transaction, claim_id: ClaimId) -> Result<pb::VoidTicketsResponse, Error> {
    let state = issuances::enter_void(transaction, claim_id).await?;
    let states = tickets::lock_claim(transaction, claim_id).await?;
    if states.contains(&TicketState::CheckedIn) {
        return Err(Error::TicketCheckedIn(claim_id));
    }
    if state != IssuanceState::Void {
        tickets::void(transaction, claim_id).await?;
        issuances::move_to(transaction, claim_id, IssuanceState::Void).await?;
        tracing::info!(%claim_id, tickets = states.len(), "tickets voided");
    }
    Ok(pb::VoidTicketsResponse { void_count: u32::try_from(states.len()).unwrap_or(u32::MAX) })
}
