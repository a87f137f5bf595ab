//! `AcceptInvitation`: binds an invitation to the customer who shows its token first.

use onsale_proto::inventory::v1 as pb;
use onsale_storage::idempotency::Request;
use onsale_types::CustomerId;

use super::{super::App, event_now};
use crate::{convert, error::Error, store};

impl App {
    /// Makes the invitation of `token` this customer's.
    pub async fn accept_invitation(
        &self,
        request: &Request<'_>,
        customer_id: CustomerId,
        token: &str,
    ) -> Result<pb::AcceptInvitationResponse, Error> {
        let named = self.invitation_tokens.read(token)?;
        let (invitation_id, quota_id, event_id) = (named.invitation_id, named.quota_id, named.event_id);
        self.once("accept invitation", request, |transaction| async move {
            // Its quota is read after the lock: whoever returns that ends the invitation too, and is waited for.
            let found = store::invitations::lock(&transaction, invitation_id).await?;
            let mut invitation = found.ok_or(Error::InvitationTokenInvalid)?;
            let found = store::quotas::find(&transaction, quota_id).await?;
            let quota = found.ok_or(Error::InvitationTokenInvalid)?;
            let (event, now) = event_now(&transaction, event_id).await?;
            let accepted = invitation.accept(customer_id, &quota, now);
            if accepted.map_err(|fault| Error::Invitation { invitation_id, fault })? {
                store::invitations::save(&transaction, &invitation).await?;
            }
            let offer = self.offer_of(&transaction, &event).await?;
            let sector = offer.sectors.iter().find(|sector| sector.id == quota.sector_id);
            let sector = sector.ok_or(Error::SectorNotFound { sector_id: quota.sector_id })?;
            Ok(convert::accepted(&invitation, &quota, &event, sector))
        })
        .await
    }
}
