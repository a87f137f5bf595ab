//! Requests of callers: every malformed field is reported in one response.

mod contents;
mod jobs;
mod reader;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::notification::v1 as pb;
use onsale_types::{
    EventId, Named as _, PageLimits, PageQuery, PageSize, PageToken, ParsePageTokenError, RequestId,
    Timestamp,
};
use uuid::Uuid;

use super::template_to_pb;
use crate::domain::{
    content::Template,
    dead_letter::{DeadLetterFilter, DeadLetterPosition, ListDeadLetters},
    delivery::Channel,
};

pub(crate) use jobs::enqueue_notifications;
pub(super) use reader::Reader;

/// Converts the request, and returns with it the query to which its page tokens belong.
pub(crate) fn list_dead_letters(
    request: &pb::ListDeadLettersRequest,
) -> Result<(ListDeadLetters, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let channels: Vec<Channel> = (0..)
        .zip(request.channels())
        .filter_map(|(index, it)| violations.check(format_args!("channels[{index}]"), channel_from_pb(it)))
        .collect();
    let templates: Vec<Template> = (0..)
        .zip(request.templates())
        .filter_map(|(index, it)| violations.check(format_args!("templates[{index}]"), template_from_pb(it)))
        .collect();
    let query = dead_letter_query(&request.event_id, &channels, &templates);
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query));
    let after = token.and_then(|token| match token {
        Some(token) => violations.check("page_token", position(&token)).map(Some),
        None => Some(None),
    });
    let list = violations.build(|| {
        let filter = DeadLetterFilter { event_id: event_id?, channels, templates };
        Some(ListDeadLetters { filter, after: after?, page_size: page_size? })
    })?;
    Ok((list, query))
}

pub(crate) fn retry_dead_letter(
    request: &pb::RetryDeadLetterRequest,
) -> Result<(RequestId, Uuid), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let delivery_id = violations.check("delivery_id", delivery_id(&request.delivery_id));
    violations.build(|| Some((request_id?, delivery_id?)))
}

pub(crate) fn get_delivery(request: &pb::GetDeliveryRequest) -> Result<Uuid, InvalidFields> {
    let mut violations = Violations::new();
    let delivery_id = violations.check("delivery_id", delivery_id(&request.delivery_id));
    violations.build(|| delivery_id)
}

fn dead_letter_query(event_id: &str, channels: &[Channel], templates: &[Template]) -> PageQuery {
    let channels: Vec<&str> = channels.iter().map(|it| it.name()).collect();
    let templates: Vec<&str> = templates.iter().map(|it| it.name()).collect();
    PageQuery::new("dead_letters")
        .with("event_id", event_id)
        .with("channels", channels.join(","))
        .with("templates", templates.join(","))
}

/// Reads the position of a page token: the end time in microseconds (8 bytes), then the delivery id.
fn position(token: &PageToken) -> Result<DeadLetterPosition, ParsePageTokenError> {
    let malformed = ParsePageTokenError::Malformed;
    let (micros, id) = token.position().split_first_chunk::<8>().ok_or(malformed)?;
    let end_time = Timestamp::from_micros(i64::from_be_bytes(*micros));
    Ok(DeadLetterPosition { end_time, delivery_id: Uuid::from_slice(id).map_err(|_length| malformed)? })
}

fn delivery_id(text: &str) -> Result<Uuid, &'static str> {
    Uuid::try_parse(text).ok().filter(|id| !id.is_nil()).ok_or("is not the UUID of a delivery")
}

fn channel_from_pb(channel: pb::Channel) -> Result<Channel, &'static str> {
    match channel {
        pb::Channel::Email => Ok(Channel::Email),
        pb::Channel::Push => Ok(Channel::Push),
        pb::Channel::Unspecified => Err("is not a channel"),
    }
}

fn template_from_pb(template: pb::Template) -> Result<Template, &'static str> {
    Template::ALL.iter().copied().find(|it| template_to_pb(*it) == template).ok_or("is not a template")
}
