//! Requests of callers: the form of their fields, and their identity for idempotent methods.

mod drafts;
mod events;
mod holds;
mod quotas;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_storage::idempotency::{Method, Request};
use onsale_types::{EventId, ParseIdError, RequestId, SectorId};
use prost::Message;

pub(crate) use self::{
    drafts::{create_event, update_event},
    events::{event_command, event_id, list_events},
    holds::{commit_hold, release_hold, reserve_units},
    quotas::{accept_invitation, create_quota, invite_to_quota, list_quotas},
};
use super::responses::encode;
use crate::domain::{
    quota::Quota,
    results::{AcceptedInvitation, EventAndOffer, InvitedToQuota},
};

/// Most sectors that an availability request may name.
const SECTORS_MAX: usize = 200;

// Idempotent methods. Their names and the bytes of their responses are stored.
pub(crate) const CREATE_EVENT: Method<EventAndOffer> = Method::new("CreateEvent", encode::create_event);
pub(crate) const UPDATE_EVENT: Method<EventAndOffer> = Method::new("UpdateEvent", encode::update_event);
pub(crate) const ACTIVATE_EVENT: Method<EventAndOffer> = Method::new("ActivateEvent", encode::activate_event);
pub(crate) const END_EVENT: Method<EventAndOffer> = Method::new("EndEvent", encode::end_event);
pub(crate) const CREATE_QUOTA: Method<Quota> = Method::new("CreateQuota", encode::create_quota);
pub(crate) const INVITE_TO_QUOTA: Method<InvitedToQuota> =
    Method::new("InviteToQuota", encode::invite_to_quota);
pub(crate) const ACCEPT_INVITATION: Method<AcceptedInvitation> =
    Method::new("AcceptInvitation", encode::accept_invitation);

/// Identifies a request of `caller` by its id and a fingerprint of its body.
pub(crate) fn identify<'a, R>(
    method: &Method<R>,
    caller: &'a str,
    request_id: RequestId,
    body: &impl Message,
) -> Request<'a, R> {
    method.request(caller, request_id, &body.encode_to_vec())
}

/// Reads the event and the sectors (empty: all) of an availability request.
pub(crate) fn availability_query(
    event_id: &str,
    sectors: &[String],
) -> Result<(EventId, Vec<SectorId>), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", event_id.parse());
    let sectors = sector_ids(&mut violations, sectors);
    violations.build(|| Some((event_id?, sectors)))
}

fn sector_ids(violations: &mut Violations, texts: &[String]) -> Vec<SectorId> {
    if texts.len() > SECTORS_MAX {
        violations.push("sector_ids", format!("must have at most {SECTORS_MAX} entries"));
        return Vec::new();
    }
    let parse = |(index, text): (usize, &String)| {
        let parsed: Result<SectorId, ParseIdError> = text.parse();
        violations.check(format_args!("sector_ids[{index}]"), parsed)
    };
    texts.iter().enumerate().filter_map(parse).collect()
}

/// Reads a text on one line.
fn line(text: &str, chars_min: usize, chars_max: usize) -> Result<String, String> {
    let length = text.chars().count();
    if !(chars_min..=chars_max).contains(&length) || (chars_min > 0 && text.trim().is_empty()) {
        Err(format!("must have {chars_min} to {chars_max} characters"))
    } else if text.chars().any(char::is_control) {
        Err("must have no control characters".to_owned())
    } else {
        Ok(text.to_owned())
    }
}
