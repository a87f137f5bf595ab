//! Quotas and invitations as organizers and invitees see them.

use onsale_proto::{convert::time_to_pb, inventory::v1 as pb};
use onsale_types::{PageQuery, PageToken, QuotaId, Timestamp};

use super::summary;
use crate::domain::{
    invitation::{Invitation, InvitationState},
    quota::{Quota, QuotaState},
    results::{AcceptedInvitation, InvitedToQuota, QuotasPage},
};

pub(super) fn create_quota(created: &Quota) -> pb::CreateQuotaResponse {
    pb::CreateQuotaResponse { quota: Some(quota(created)) }
}

pub(super) fn invite_to_quota(invited: &InvitedToQuota) -> pb::InviteToQuotaResponse {
    pb::InviteToQuotaResponse {
        invitations: invited.invitations.iter().map(|it| invitation(it, &invited.quota)).collect(),
        quota: Some(quota(&invited.quota)),
    }
}

/// Leaves out the email address: the customer who shows the token may not be its recipient.
pub(super) fn accept_invitation(accepted: &AcceptedInvitation) -> pb::AcceptInvitationResponse {
    let accepted_invitation = invitation(&accepted.invitation, &accepted.quota);
    pb::AcceptInvitationResponse {
        invitation: Some(pb::Invitation { email: String::new(), ..accepted_invitation }),
        event: Some(summary(&accepted.event)),
        sector_name: accepted.sector.name.clone(),
    }
}

/// Encodes a page; `query` makes its token valid for the same list only.
pub(crate) fn list_quotas(page: &QuotasPage, query: &PageQuery) -> pb::ListQuotasResponse {
    let next = page.next.map(|position| PageToken::after(write_position(position)).encode(query));
    pb::ListQuotasResponse {
        quotas: page.quotas.iter().map(quota).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

fn quota(quota: &Quota) -> pb::Quota {
    let state = match quota.state {
        QuotaState::Open => pb::QuotaState::Open,
        QuotaState::Returned => pb::QuotaState::Returned,
    };
    pb::Quota {
        quota_id: quota.id.to_string(),
        event_id: quota.event_id.to_string(),
        sector_id: quota.sector_id.to_string(),
        name: quota.name.clone(),
        unit_count: quota.unit_count,
        invited_count: quota.invited_count,
        used_count: quota.used_count,
        return_time: Some(time_to_pb(quota.return_time)),
        state: state.into(),
        create_time: Some(time_to_pb(quota.create_time)),
    }
}

fn invitation(invitation: &Invitation, quota: &Quota) -> pb::Invitation {
    let state = match invitation.state {
        InvitationState::Pending => pb::InvitationState::Pending,
        InvitationState::Accepted => pb::InvitationState::Accepted,
        InvitationState::Used => pb::InvitationState::Used,
        InvitationState::Expired => pb::InvitationState::Expired,
    };
    pb::Invitation {
        invitation_id: invitation.id.to_string(),
        quota_id: quota.id.to_string(),
        event_id: quota.event_id.to_string(),
        sector_id: quota.sector_id.to_string(),
        email: invitation.email.clone(),
        unit_count: invitation.unit_count,
        state: state.into(),
        expire_time: Some(time_to_pb(quota.return_time)),
        accept_time: invitation.accepted.map(|accepted| time_to_pb(accepted.time)),
    }
}

/// Writes the position of a page token: create time and id of the page's last quota.
fn write_position((time, quota_id): (Timestamp, QuotaId)) -> Vec<u8> {
    let mut position = time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(quota_id.as_uuid().as_bytes());
    position
}
