//! Responses to callers.

mod availability;
mod events;
mod holds;
mod quotas;

use onsale_proto::inventory::v1 as pb;
use onsale_storage::idempotency::Answer;
use prost::Message;

pub(super) use self::events::{event, layout, summary};
pub(crate) use self::{
    availability::{availability_update, get_availability},
    events::{get_event, list_events},
    holds::{commit_hold, release_hold, reserve_units},
    quotas::list_quotas,
};
use crate::{
    domain::{
        quota::Quota,
        results::{AcceptedInvitation, EventAndOffer, InvitedToQuota},
    },
    error::Error,
};

pub(crate) fn create_event(answer: Answer<EventAndOffer>) -> Result<pb::CreateEventResponse, Error> {
    respond(answer, events::create_event)
}

pub(crate) fn update_event(answer: Answer<EventAndOffer>) -> Result<pb::UpdateEventResponse, Error> {
    respond(answer, events::update_event)
}

pub(crate) fn activate_event(answer: Answer<EventAndOffer>) -> Result<pb::ActivateEventResponse, Error> {
    respond(answer, events::activate_event)
}

pub(crate) fn end_event(answer: Answer<EventAndOffer>) -> Result<pb::EndEventResponse, Error> {
    respond(answer, events::end_event)
}

pub(crate) fn create_quota(answer: Answer<Quota>) -> Result<pb::CreateQuotaResponse, Error> {
    respond(answer, quotas::create_quota)
}

pub(crate) fn invite_to_quota(answer: Answer<InvitedToQuota>) -> Result<pb::InviteToQuotaResponse, Error> {
    respond(answer, quotas::invite_to_quota)
}

pub(crate) fn accept_invitation(
    answer: Answer<AcceptedInvitation>,
) -> Result<pb::AcceptInvitationResponse, Error> {
    respond(answer, quotas::accept_invitation)
}

/// Converts a new result, or decodes the stored response of an earlier identical request.
fn respond<R, M: Message + Default>(answer: Answer<R>, convert: fn(&R) -> M) -> Result<M, Error> {
    Ok(answer.into_response(convert, |bytes| M::decode(bytes))?)
}

/// Responses of idempotent methods, encoded for storage.
pub(super) mod encode {
    use prost::Message as _;

    use super::{AcceptedInvitation, EventAndOffer, InvitedToQuota, Quota, events, quotas};

    pub(in crate::convert) fn create_event(created: &EventAndOffer) -> Vec<u8> {
        events::create_event(created).encode_to_vec()
    }

    pub(in crate::convert) fn update_event(updated: &EventAndOffer) -> Vec<u8> {
        events::update_event(updated).encode_to_vec()
    }

    pub(in crate::convert) fn activate_event(activated: &EventAndOffer) -> Vec<u8> {
        events::activate_event(activated).encode_to_vec()
    }

    pub(in crate::convert) fn end_event(ended: &EventAndOffer) -> Vec<u8> {
        events::end_event(ended).encode_to_vec()
    }

    pub(in crate::convert) fn create_quota(created: &Quota) -> Vec<u8> {
        quotas::create_quota(created).encode_to_vec()
    }

    pub(in crate::convert) fn invite_to_quota(invited: &InvitedToQuota) -> Vec<u8> {
        quotas::invite_to_quota(invited).encode_to_vec()
    }

    pub(in crate::convert) fn accept_invitation(accepted: &AcceptedInvitation) -> Vec<u8> {
        quotas::accept_invitation(accepted).encode_to_vec()
    }
}
