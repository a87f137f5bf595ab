//! Quotas and invitations: requests about them, and how organizers, invitees and Notification see them.

use std::collections::BTreeSet;

use onsale_kit::{
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{events::v1 as events, inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{PageLimits, PageQuery, PageSize, PageToken, QuotaId, RequestId, Timestamp};

use super::{
    draft::{CAPACITY_MAX, line},
    event, invalid, read_choice, time, wire_time,
};
use crate::{
    app::{ListQuotas, NewQuota, QuotasPage},
    domain::{
        event::{Event, Sector},
        hold::{Selection, SelectionFault},
        invitation::{Invitation, InvitationState, Invitee, is_email},
        quota::{DraftFault, Quota, QuotaState},
    },
    error::Error,
};

const NAME_CHARS_MAX: usize = 100;
const INVITEES_MAX: usize = 500;
const LOCALES: [&str; 3] = ["", "en", "hr"];

/// A request to create a quota.
#[derive(Clone, Debug)]
pub struct CreateQuota {
    /// Names the request.
    pub request_id: RequestId,
    /// The quota.
    pub new: NewQuota,
}

/// A request to invite people.
#[derive(Clone, Debug)]
pub struct Invite {
    /// Names the request.
    pub request_id: RequestId,
    /// The quota.
    pub quota_id: QuotaId,
    /// Whom.
    pub invitees: Vec<Invitee>,
}

/// A request to accept an invitation.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Names the request.
    pub request_id: RequestId,
    /// The token from the mail.
    pub token: Secret,
}

/// Reads a request to create a quota.
pub fn create_quota(request: &pb::CreateQuotaRequest) -> Result<CreateQuota, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let name = violations.check("name", line(&request.name, 1, NAME_CHARS_MAX));
    let selection = violations.require("selection", request.selection.as_ref());
    let selection = selection.and_then(|selection| read_selection(&mut violations, selection));
    let return_time = violations.require("return_time", request.return_time);
    let return_time = return_time.and_then(|wire| violations.check("return_time", time(wire)));
    violations.build(|| {
        let new =
            NewQuota { event_id: event_id?, name: name?, selection: selection?, return_time: return_time? };
        Some(CreateQuota { request_id: request_id?, new })
    })
}

/// Reads a request to invite people.
pub fn invite_to_quota(request: &pb::InviteToQuotaRequest) -> Result<Invite, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let quota_id = violations.check("quota_id", request.quota_id.parse());
    if request.invitees.is_empty() || request.invitees.len() > INVITEES_MAX {
        violations.push("invitees", format!("must be 1 to {INVITEES_MAX}"));
        return violations.build(|| None);
    }
    let (mut addresses, mut invitees) = (BTreeSet::new(), Vec::with_capacity(request.invitees.len()));
    for (index, invitee) in request.invitees.iter().enumerate() {
        let field = format!("invitees[{index}]");
        if !is_email(&invitee.email) {
            violations.push(format!("{field}.email"), "is not an email address of at most 254 characters");
        } else if !addresses.insert(invitee.email.to_lowercase()) {
            violations.push(format!("{field}.email"), "names an address twice");
        }
        if !LOCALES.contains(&invitee.locale.as_str()) {
            violations.push(format!("{field}.locale"), "must be hr or en");
        }
        invitees.push(Invitee {
            email: invitee.email.clone(),
            unit_count: invitee.unit_count.max(1),
            locale: invitee.locale.clone(),
        });
    }
    violations.build(|| Some(Invite { request_id: request_id?, quota_id: quota_id?, invitees }))
}

/// Reads a request for a page of quotas; also what its page tokens belong to.
pub fn list_quotas(request: &pb::ListQuotasRequest) -> Result<(ListQuotas, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", request.event_id.parse());
    let wanted = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(wanted, PageLimits::default()));
    let query = PageQuery::new("quotas").with("event_id", &request.event_id);
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query)).flatten();
    let after = token.and_then(|token| violations.require("page_token", read_position(token.position())));
    let list = violations.build(|| Some(ListQuotas { event_id: event_id?, page_size: page_size?, after }))?;
    Ok((list, query))
}

/// Reads a request to accept an invitation.
pub fn accept_invitation(request: &pb::AcceptInvitationRequest) -> Result<Accept, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let token = request.invitation_token.as_str();
    let token = violations.require("invitation_token", (!token.is_empty()).then(|| Secret::new(token)));
    violations.build(|| Some(Accept { request_id: request_id?, token: token? }))
}

/// When a quota may be returned, as far as its event decides it.
pub fn return_time(given: Timestamp, now: Timestamp, start_time: Timestamp) -> Result<(), InvalidFields> {
    if given <= now {
        Err(invalid("return_time", "must be in the future"))
    } else if given >= start_time {
        Err(invalid("return_time", "must be before the event starts"))
    } else {
        Ok(())
    }
}

/// What a caller hears of a selection of a quota that does not fit the event.
#[must_use]
pub fn unit_selection(fault: SelectionFault) -> Error {
    match fault {
        SelectionFault::UnknownSector(sector_id) => Error::SectorNotFound { sector_id },
        SelectionFault::NotSeated { .. } | SelectionFault::UnknownUnit { .. } => {
            invalid("selection.units", fault).into()
        }
        SelectionFault::TooMany { .. } => invalid("selection", fault).into(),
    }
}

/// A selection is not of the sector that an invitation is for.
#[must_use]
pub fn invited_selection(index: usize) -> InvalidFields {
    invalid(format!("selections[{index}].sector_id"), "is not the sector of the invitation")
}

/// How many units an invitation may buy, as far as the event decides it.
pub fn check_invitees(invitees: &[Invitee], units_max: u32) -> Result<(), InvalidFields> {
    let mut violations = Violations::new();
    for (index, invitee) in invitees.iter().enumerate() {
        if invitee.unit_count > units_max {
            let message = format!("is more than {units_max}, the event's limit per customer");
            violations.push(format!("invitees[{index}].unit_count"), message);
        }
    }
    violations.finish()
}

/// What an organizer hears of a change that would harm a quota.
pub fn check_draft(faults: &[DraftFault]) -> Result<(), InvalidFields> {
    let mut violations = Violations::new();
    for fault in faults {
        let field = match fault {
            DraftFault::Removed(_) => "event.sectors".to_owned(),
            DraftFault::Reshaped { index } => format!("event.sectors[{index}].capacity"),
            DraftFault::Early => "event.start_time".to_owned(),
        };
        violations.push(field, fault.to_string());
    }
    violations.finish()
}

/// The quota as its organizer sees it.
#[must_use]
pub fn quota(quota: &Quota) -> pb::Quota {
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
        return_time: Some(wire_time(quota.return_time)),
        state: state.into(),
        create_time: Some(wire_time(quota.create_time)),
    }
}

/// The answer to a request for a page of quotas.
#[must_use]
pub fn listed_quotas(page: &QuotasPage, query: &PageQuery) -> pb::ListQuotasResponse {
    let next = page.next.map(|position| PageToken::after(write_position(position)).encode(query));
    pb::ListQuotasResponse {
        quotas: page.quotas.iter().map(quota).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

/// The invitation as its organizer sees it.
#[must_use]
pub fn invitation(invitation: &Invitation, quota: &Quota) -> pb::Invitation {
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
        expire_time: Some(wire_time(quota.return_time)),
        accept_time: invitation.accepted.map(|accepted| wire_time(accepted.time)),
    }
}

/// The answer to an invitee. The address is not told: whoever has the token need not be who it was mailed to.
#[must_use]
pub fn accepted(
    accepted: &Invitation,
    quota: &Quota,
    about: &Event,
    sector: &Sector,
) -> pb::AcceptInvitationResponse {
    pb::AcceptInvitationResponse {
        invitation: Some(pb::Invitation { email: String::new(), ..invitation(accepted, quota) }),
        event: Some(event::summary(about)),
        sector_name: sector.name.clone(),
    }
}

/// `quota.invitation`.
#[must_use]
pub fn quota_invitation(
    about: &Event,
    sector: &Sector,
    quota: &Quota,
    invitation: &Invitation,
    locale: &str,
    accept_url: String,
) -> events::QuotaInvitation {
    events::QuotaInvitation {
        invitation_id: invitation.id.to_string(),
        event: Some(event::summary(about)),
        quota_name: quota.name.clone(),
        sector_name: sector.name.clone(),
        unit_count: invitation.unit_count,
        email: invitation.email.clone(),
        locale: locale.to_owned(),
        accept_url,
        expire_time: Some(wire_time(quota.return_time)),
    }
}

fn read_selection(violations: &mut Violations, selection: &types::UnitSelection) -> Option<Selection> {
    let sector_id = violations.check("selection.sector_id", selection.sector_id.parse());
    let wanted = violations.check("selection", read_choice(selection, CAPACITY_MAX));
    Some(Selection { sector_id: sector_id?, choice: wanted? })
}

/// The key of a page's last row: its create time and id.
fn write_position((time, quota_id): (Timestamp, QuotaId)) -> Vec<u8> {
    let mut position = time.as_micros().to_be_bytes().to_vec();
    position.extend_from_slice(quota_id.as_uuid().as_bytes());
    position
}

fn read_position(position: &[u8]) -> Option<(Timestamp, QuotaId)> {
    let (micros, id) = position.split_first_chunk::<8>()?;
    let id = uuid::Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), QuotaId::from_uuid(id)))
}
