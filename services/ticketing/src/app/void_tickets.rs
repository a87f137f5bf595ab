//! `VoidTickets`: grpc → app → store::issuances → store::tickets → store::issuances.

use onsale_storage::{
    idempotency::{Answer, Request},
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
    /// Voids all tickets of the claim and returns their number, once per `request`. A claim without tickets is marked VOID, so it
    /// receives none later. Fails, and changes nothing, if one of the tickets was checked in.
    pub(crate) async fn void_tickets(
        &self,
        request: &Request<'_, u32>,
        claim_id: ClaimId,
    ) -> Result<Answer<u32>, Error> {
        let work = |transaction: Transaction| async move {
            request.once(&transaction, void(&transaction, claim_id)).await
        };
        self.stores.postgres.transaction("void tickets", work).await
    }
}

async fn void(transaction: &Transaction, claim_id: ClaimId) -> Result<u32, Error> {
    let state = issuances::lock_for_void(transaction, claim_id).await?;
    let states = tickets::lock_states(transaction, claim_id).await?;
    if states.contains(&TicketState::CheckedIn) {
        return Err(Error::TicketCheckedIn { claim_id });
    }
    if state != IssuanceState::Void {
        tickets::void(transaction, claim_id).await?;
        issuances::set_state(transaction, claim_id, IssuanceState::Void).await?;
        tracing::info!(%claim_id, tickets = states.len(), "tickets voided");
    }
    Ok(u32::try_from(states.len()).unwrap_or(u32::MAX))
}
