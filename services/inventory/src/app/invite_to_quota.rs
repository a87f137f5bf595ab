//! `InviteToQuota`: grpc → app → store → domain::quota → store → outbox. Promises units to people and publishes a mail with a
//! token for each new invitation, all or none.

use std::collections::HashSet;

use onsale_storage::{
    idempotency::{Answer, Request},
    postgres::Transaction,
};
use onsale_types::{InvitationId, OrganizerId, QuotaId};

use super::App;
use crate::{
    domain::{
        domain_event::DomainEvent,
        event::{Event, EventState, IllegalMove},
        invitation::{Invitation, Invitee, invitees_above},
        quota::{Exhausted, Quota},
        results::InvitedToQuota,
    },
    engine::event_now,
    error::{self, Error},
    metrics, store,
};

impl App {
    pub(crate) async fn invite_to_quota(
        &self,
        request: &Request<'_, InvitedToQuota>,
        organizer_id: OrganizerId,
        quota_id: QuotaId,
        invitees: &[Invitee],
    ) -> Result<Answer<InvitedToQuota>, Error> {
        self.once("invite to quota", request, |transaction| async move {
            // The event is not locked: its owner never changes, and no other change of it affects a promise.
            let (mut quota, event) = lock_own_quota(&transaction, quota_id, organizer_id).await?;
            let units_max = event.details.units_per_customer_max;
            error::refuse_invitees(&invitees_above(invitees, units_max), units_max)?;
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
            Ok(InvitedToQuota { invitations, quota })
        })
        .await
    }

    /// Appends one `quota.invitation` per new invitation to the outbox.
    async fn publish_invitations(
        &self,
        transaction: &Transaction,
        event: &Event,
        quota: &Quota,
        new: &[(&Invitation, &Invitee)],
    ) -> Result<(), Error> {
        let offer = self.engine.offer_of(transaction, event).await?;
        let sector = offer.sector(quota.sector_id);
        let sector = sector.ok_or(Error::SectorNotFound { sector_id: quota.sector_id })?;
        let mut events = Vec::with_capacity(new.len());
        for (invitation, invitee) in new {
            let accept_url = self.engine.invitation_tokens.accept_url(invitation, quota)?;
            events.push(DomainEvent::QuotaInvitation {
                event,
                sector,
                quota,
                invitation,
                invitee,
                accept_url,
            });
        }
        self.stores.outbox.append(transaction, &events).await?;
        let count = new.len();
        transaction.after_commit(move || metrics::invited(count));
        Ok(())
    }
}

/// Returns the quota, locked, and its event, if `organizer_id` may invite to the quota now.
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
