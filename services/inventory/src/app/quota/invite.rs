//! `InviteToQuota`: promises units to people and mails each a token, all or none.

use std::collections::HashSet;

use onsale_proto::inventory::v1 as pb;
use onsale_storage::{idempotency::Request, messaging::NewEvent, postgres::Transaction};
use onsale_types::{InvitationId, OrganizerId, QuotaId};

use super::{super::App, event_now};
use crate::{
    convert,
    domain::{
        event::{Event, EventState, IllegalMove},
        invitation::{Invitation, Invitee},
        quota::{Exhausted, Quota},
    },
    error::Error,
    metrics, store,
};

impl App {
    /// Invites people to a quota of `organizer_id`.
    pub async fn invite_to_quota(
        &self,
        request: &Request<'_>,
        organizer_id: OrganizerId,
        quota_id: QuotaId,
        invitees: &[Invitee],
    ) -> Result<pb::InviteToQuotaResponse, Error> {
        self.once("invite to quota", request, |transaction| async move {
            // The event is not locked: whose it is stays, and what else may change harms no promise.
            let (mut quota, event) = lock_own_quota(&transaction, quota_id, organizer_id).await?;
            convert::check_invitees(invitees, event.details.units_per_customer_max)?;
            let invitees: Vec<_> = invitees.iter().map(|it| (InvitationId::generate(), it)).collect();
            let invitations = store::invitations::insert(&transaction, quota_id, &invitees).await?;
            let new_ids: HashSet<InvitationId> = invitees.iter().map(|(id, _)| *id).collect();
            let new = invitations.iter().zip(&invitees).filter(|(it, _)| new_ids.contains(&it.id));
            let new: Vec<(&Invitation, &Invitee)> = new.map(|(it, (_, invitee))| (it, *invitee)).collect();
            let promised = new.iter().map(|(it, _)| it.unit_count).fold(0, u32::saturating_add);
            quota
                .promise(promised)
                .map_err(|Exhausted { free_count }| Error::QuotaExhausted { quota_id, free_count })?;
            store::quotas::save(&transaction, &quota).await?;
            self.publish_invitations(&transaction, &event, &quota, &new).await?;
            Ok(pb::InviteToQuotaResponse {
                invitations: invitations.iter().map(|it| convert::invitation(it, &quota)).collect(),
                quota: Some(convert::quota(&quota)),
            })
        })
        .await
    }

    /// One `quota.invitation` for each new invitation, in `transaction`.
    async fn publish_invitations(
        &self,
        transaction: &Transaction,
        event: &Event,
        quota: &Quota,
        new: &[(&Invitation, &Invitee)],
    ) -> Result<(), Error> {
        let offer = self.offer_of(transaction, event).await?;
        let sector = offer.sectors.iter().find(|sector| sector.id == quota.sector_id);
        let sector = sector.ok_or(Error::SectorNotFound { sector_id: quota.sector_id })?;
        let mut events = Vec::with_capacity(new.len());
        for (invitation, invitee) in new {
            let accept_url = self.invitation_tokens.accept_url(invitation, quota)?;
            let locale = &invitee.locale;
            let payload = convert::quota_invitation(event, sector, quota, invitation, locale, accept_url);
            events.push(NewEvent::new(invitation.id, &payload));
        }
        self.stores.outbox.append(transaction, &events).await?;
        let count = new.len();
        transaction.after_commit(move || metrics::invited(count));
        Ok(())
    }
}

/// The quota, locked, and its event, if `organizer_id` may invite to it now.
async fn lock_own_quota(
    transaction: &Transaction,
    quota_id: QuotaId,
    organizer_id: OrganizerId,
) -> Result<(Quota, Event), Error> {
    let not_found = || Error::QuotaNotFound { quota_id };
    let quota = store::quotas::lock(transaction, quota_id).await?.ok_or_else(not_found)?;
    let (event, now) = event_now(transaction, quota.event_id).await?;
    if event.organizer_id != organizer_id {
        return Err(not_found());
    }
    if !quota.is_open_at(now) {
        return Err(Error::QuotaReturned { quota_id });
    }
    if event.state == EventState::Ended {
        return Err(IllegalMove { state: event.state }.into());
    }
    Ok((quota, event))
}
