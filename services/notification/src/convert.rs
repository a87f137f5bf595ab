//! Between the contract and the domain: the only files that name both.

pub mod events;
pub mod requests;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::notification::v1 as pb;
use onsale_types::{
    EventId, PageLimits, PageQuery, PageSize, PageToken, ParsePageTokenError, RequestId, Timestamp,
};
use uuid::Uuid;

use crate::{
    app::{DeadLetters, Enqueued, ListDeadLetters},
    domain::{
        content::Template,
        delivery::{Attempt, Channel, Delivery, State},
    },
    store::dead_letters::{Filter, Position},
};

/// A page of dead letters, and what its token belongs to.
pub fn list_dead_letters(
    request: pb::ListDeadLettersRequest,
) -> Result<(ListDeadLetters, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let requested = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page = violations.check("page_size", PageSize::from_request(requested, PageLimits::default()));
    let channels: Vec<Channel> = (0..)
        .zip(request.channels())
        .filter_map(|(index, it)| violations.check(format!("channels[{index}]"), channel(it)))
        .collect();
    let templates: Vec<Template> = (0..)
        .zip(request.templates())
        .filter_map(|(index, it)| violations.check(format!("templates[{index}]"), template(it)))
        .collect();
    let query = query(&request.event_id, &channels, &templates);
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query));
    let after = token.and_then(|token| match token {
        Some(token) => violations.check("page_token", position(&token)).map(Some),
        None => Some(None),
    });
    let list = violations.build(|| {
        let filter = Filter { event_id: event_id?, channels, templates };
        Some(ListDeadLetters { filter, after: after?, page: page? })
    })?;
    Ok((list, query))
}

fn query(event_id: &str, channels: &[Channel], templates: &[Template]) -> PageQuery {
    let channels: Vec<&str> = channels.iter().map(|it| it.name()).collect();
    let templates: Vec<&str> = templates.iter().map(|it| it.name()).collect();
    PageQuery::new("dead_letters")
        .with("event_id", event_id)
        .with("channels", channels.join(","))
        .with("templates", templates.join(","))
}

fn position(token: &PageToken) -> Result<Position, ParsePageTokenError> {
    let malformed = ParsePageTokenError::Malformed;
    let (micros, id) = token.position().split_first_chunk::<8>().ok_or(malformed)?;
    let end_time = Timestamp::from_micros(i64::from_be_bytes(*micros));
    Ok(Position { end_time, delivery_id: Uuid::from_slice(id).map_err(|_length| malformed)? })
}

/// A page of dead letters, for its caller.
#[must_use]
pub fn dead_letters(letters: DeadLetters, query: &PageQuery) -> pb::ListDeadLettersResponse {
    let next = letters.next.map(|next| {
        let mut position = next.end_time.as_micros().to_be_bytes().to_vec();
        position.extend_from_slice(next.delivery_id.as_bytes());
        PageToken::after(position).encode(query)
    });
    pb::ListDeadLettersResponse {
        dead_letters: letters.deliveries.into_iter().map(dead_letter).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

fn dead_letter(dead: Delivery) -> pb::DeadLetter {
    let error = dead.attempts.last().and_then(|attempt| attempt.error.clone()).unwrap_or_default();
    let dead_time = dead.end_time.map(requests::timestamp);
    pb::DeadLetter { delivery: Some(delivery(dead)), error, dead_time }
}

/// Which dead letter to try again.
pub fn retry_dead_letter(request: &pb::RetryDeadLetterRequest) -> Result<(RequestId, Uuid), InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    let delivery_id = violations.check("delivery_id", delivery_id(&request.delivery_id));
    violations.build(|| Some((request_id?, delivery_id?)))
}

/// Which delivery.
pub fn get_delivery(request: &pb::GetDeliveryRequest) -> Result<Uuid, InvalidFields> {
    let mut violations = Violations::new();
    let delivery_id = violations.check("delivery_id", delivery_id(&request.delivery_id));
    violations.build(|| delivery_id)
}

fn delivery_id(text: &str) -> Result<Uuid, &'static str> {
    Uuid::try_parse(text).ok().filter(|id| !id.is_nil()).ok_or("is not the UUID of a delivery")
}

/// A delivery, for its caller.
#[must_use]
pub fn delivery(delivery: Delivery) -> pb::Delivery {
    let next_attempt = delivery.due_time.filter(|_| delivery.state == State::Queued);
    pb::Delivery {
        delivery_id: delivery.delivery_id.to_string(),
        job_id: delivery.job_id.to_string(),
        event_id: delivery.event_id.to_string(),
        template: pb_template(delivery.template).into(),
        channel: pb_channel(delivery.channel).into(),
        masked_recipient: delivery.email.masked(),
        state: pb_state(delivery.state).into(),
        attempts: delivery.attempts.into_iter().map(attempt).collect(),
        next_attempt_time: next_attempt.map(requests::timestamp),
        create_time: Some(requests::timestamp(delivery.create_time)),
        end_time: delivery.end_time.map(requests::timestamp),
    }
}

fn attempt(attempt: Attempt) -> pb::DeliveryAttempt {
    pb::DeliveryAttempt {
        attempt_time: Some(requests::timestamp(attempt.time)),
        provider: attempt.provider,
        provider_message_id: attempt.provider_message_id.unwrap_or_default(),
        error: attempt.error.unwrap_or_default(),
    }
}

/// What became of jobs, for their caller.
#[must_use]
pub fn enqueued(enqueued: Enqueued) -> pb::EnqueueNotificationsResponse {
    pb::EnqueueNotificationsResponse {
        accepted_count: enqueued.accepted,
        duplicate_count: enqueued.duplicate,
        enqueue_time: Some(requests::timestamp(enqueued.time)),
    }
}

fn channel(channel: pb::Channel) -> Result<Channel, &'static str> {
    match channel {
        pb::Channel::Email => Ok(Channel::Email),
        pb::Channel::Push => Ok(Channel::Push),
        pb::Channel::Unspecified => Err("is not a channel"),
    }
}

fn pb_channel(channel: Channel) -> pb::Channel {
    match channel {
        Channel::Email => pb::Channel::Email,
        Channel::Push => pb::Channel::Push,
    }
}

fn template(template: pb::Template) -> Result<Template, &'static str> {
    Template::ALL.into_iter().find(|it| pb_template(*it) == template).ok_or("is not a template")
}

fn pb_template(template: Template) -> pb::Template {
    match template {
        Template::OrderConfirmation => pb::Template::OrderConfirmation,
        Template::TicketDelivery => pb::Template::TicketDelivery,
        Template::QuotaInvitation => pb::Template::QuotaInvitation,
        Template::QueueUpdate => pb::Template::QueueUpdate,
        Template::QueueYourTurn => pb::Template::QueueYourTurn,
        Template::Reminder => pb::Template::Reminder,
        Template::Refund => pb::Template::Refund,
    }
}

fn pb_state(state: State) -> pb::DeliveryState {
    match state {
        State::Queued => pb::DeliveryState::Queued,
        State::Sending => pb::DeliveryState::Sending,
        State::Delivered => pb::DeliveryState::Delivered,
        State::Skipped => pb::DeliveryState::Skipped,
        State::Dead => pb::DeliveryState::Dead,
    }
}
