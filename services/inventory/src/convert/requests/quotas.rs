//! Requests about quotas and invitations.

use std::collections::BTreeSet;

use onsale_kit::{
    config::Secret,
    error::{InvalidFields, Violations},
};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{PageLimits, PageQuery, PageSize, PageToken, QuotaId, RequestId, Timestamp};

use super::{drafts::CAPACITY_MAX, holds::unit_choice, line};
use crate::domain::{
    commands::{self, ListQuotas},
    hold::Selection,
    invitation::{Invitee, is_email},
};

const NAME_CHARS_MAX: usize = 100;
const INVITEES_MAX: usize = 500;
/// Languages of mails; empty: Notification's default.
const LOCALES: [&str; 3] = ["", "en", "hr"];

#[derive(Clone, Debug)]
pub(crate) struct CreateQuota {
    pub(crate) request_id: RequestId,
    pub(crate) quota: commands::CreateQuota,
}

#[derive(Clone, Debug)]
pub(crate) struct InviteToQuota {
    pub(crate) request_id: RequestId,
    pub(crate) quota_id: QuotaId,
    pub(crate) invitees: Vec<Invitee>,
}

#[derive(Clone, Debug)]
pub(crate) struct AcceptInvitation {
    pub(crate) request_id: RequestId,
    pub(crate) token: Secret,
}

pub(crate) fn create_quota(request: &pb::CreateQuotaRequest) -> Result<CreateQuota, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let name = violations.check("name", line(&request.name, 1, NAME_CHARS_MAX));
    let selection = violations.require("selection", request.selection.as_ref());
    let selection = selection.and_then(|selection| read_selection(&mut violations, selection));
    let return_time = violations.require_time("return_time", request.return_time);
    violations.build(|| {
        let (event_id, name, selection, return_time) = (event_id?, name?, selection?, return_time?);
        let quota = commands::CreateQuota { event_id, name, selection, return_time };
        Some(CreateQuota { request_id: request_id?, quota })
    })
}

pub(crate) fn invite_to_quota(request: &pb::InviteToQuotaRequest) -> Result<InviteToQuota, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let quota_id = violations.check("quota_id", request.quota_id.parse());
    if request.invitees.is_empty() || request.invitees.len() > INVITEES_MAX {
        violations.push("invitees", format!("must have 1 to {INVITEES_MAX} entries"));
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
            violations.push(format!("{field}.locale"), "must be empty, hr or en");
        }
        invitees.push(Invitee {
            email: invitee.email.clone(),
            unit_count: invitee.unit_count.max(1),
            locale: invitee.locale.clone(),
        });
    }
    violations.build(|| Some(InviteToQuota { request_id: request_id?, quota_id: quota_id?, invitees }))
}

/// Also returns the query that page tokens of the list are valid for.
pub(crate) fn list_quotas(request: &pb::ListQuotasRequest) -> Result<(ListQuotas, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", request.event_id.parse());
    let rows = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(rows, PageLimits::default()));
    let query = PageQuery::new("quotas").with("event_id", &request.event_id);
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query)).flatten();
    let after = token.and_then(|token| violations.require("page_token", read_position(token.position())));
    let list = violations.build(|| Some(ListQuotas { event_id: event_id?, page_size: page_size?, after }))?;
    Ok((list, query))
}

pub(crate) fn accept_invitation(
    request: &pb::AcceptInvitationRequest,
) -> Result<AcceptInvitation, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let token = request.invitation_token.as_str();
    let token = violations.require("invitation_token", (!token.is_empty()).then(|| Secret::new(token)));
    violations.build(|| Some(AcceptInvitation { request_id: request_id?, token: token? }))
}

fn read_selection(violations: &mut Violations, selection: &types::UnitSelection) -> Option<Selection> {
    let sector_id = violations.check("selection.sector_id", selection.sector_id.parse());
    let choice = violations.check("selection", unit_choice(selection, CAPACITY_MAX));
    Some(Selection { sector_id: sector_id?, choice: choice? })
}

/// Reads the position of a page token: create time and id of the previous page's last quota.
fn read_position(position: &[u8]) -> Option<(Timestamp, QuotaId)> {
    let (micros, id) = position.split_first_chunk::<8>()?;
    let id = uuid::Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), QuotaId::from_uuid(id)))
}
