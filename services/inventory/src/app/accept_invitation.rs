//! `AcceptInvitation`: grpc → app → engine::invitation_tokens → store → domain::invitation → store. Binds an invitation to the
//! first customer who shows its token.

use onsale_storage::idempotency::{Answer, Request};
use onsale_types::CustomerId;

use super::App;
use crate::{
    domain::results::AcceptedInvitation,
    engine::{InvitationClaims, event_now},
    error::Error,
    store,
};

impl App {
    pub(crate) async fn accept_invitation(
        &self,
        request: &Request<'_, AcceptedInvitation>,
        customer_id: CustomerId,
        token: &str,
    ) -> Result<Answer<AcceptedInvitation>, Error> {
        let InvitationClaims { invitation_id, quota_id, event_id } =
            self.engine.invitation_tokens.read(token)?;
        self.once("accept invitation", request, |transaction| async move {
            // The quota is read after the invitation is locked: a return of the quota changes the invitation too, so it has
            // either committed or waits.
            let found = store::invitations::lock(&transaction, invitation_id).await?;
            let mut invitation = found.ok_or(Error::InvitationTokenInvalid)?;
            let found = store::quotas::find(&transaction, quota_id).await?;
            let quota = found.ok_or(Error::InvitationTokenInvalid)?;
            let (event, now) = event_now(&transaction, event_id).await?;
            let accepted = invitation.accept(customer_id, &quota, now);
            if accepted.map_err(|fault| Error::Invitation { invitation_id, fault })? {
                store::invitations::save(&transaction, &invitation).await?;
            }
            let offer = self.engine.offer_of(&transaction, &event).await?;
            let sector = offer.sector(quota.sector_id);
            let sector = sector.ok_or(Error::SectorNotFound { sector_id: quota.sector_id })?.clone();
            Ok(AcceptedInvitation { invitation, quota, event, sector })
        })
        .await
    }
}
