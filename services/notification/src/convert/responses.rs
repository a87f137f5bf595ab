//! Responses to callers, and the answers that are stored for repeated requests.

use onsale_proto::{convert::time_to_pb, notification::v1 as pb};
use onsale_storage::idempotency::Method;
use onsale_types::{PageQuery, PageToken};
use prost::Message as _;

use super::{channel_to_pb, template_to_pb};
use crate::domain::{
    dead_letter::DeadLetterPage,
    delivery::{Delivery, DeliveryAttempt, DeliveryState},
    job::EnqueueResult,
};

pub(crate) const RETRY_DEAD_LETTER: Method<Delivery> =
    Method::new("RetryDeadLetter", |delivery| retry_dead_letter(delivery).encode_to_vec());

pub(crate) const ENQUEUE_NOTIFICATIONS: Method<EnqueueResult> =
    Method::new("EnqueueNotifications", |result| enqueue_notifications(result).encode_to_vec());

pub(crate) fn list_dead_letters(page: &DeadLetterPage, query: &PageQuery) -> pb::ListDeadLettersResponse {
    let next = page.next.map(|next| {
        let mut position = next.end_time.as_micros().to_be_bytes().to_vec();
        position.extend_from_slice(next.delivery_id.as_bytes());
        PageToken::after(position).encode(query)
    });
    pb::ListDeadLettersResponse {
        dead_letters: page.deliveries.iter().map(dead_letter_to_pb).collect(),
        next_page_token: next.unwrap_or_default(),
    }
}

pub(crate) fn get_delivery(delivery: &Delivery) -> pb::GetDeliveryResponse {
    pb::GetDeliveryResponse { delivery: Some(delivery_to_pb(delivery)) }
}

pub(crate) fn retry_dead_letter(delivery: &Delivery) -> pb::RetryDeadLetterResponse {
    pb::RetryDeadLetterResponse { delivery: Some(delivery_to_pb(delivery)) }
}

pub(crate) fn enqueue_notifications(result: &EnqueueResult) -> pb::EnqueueNotificationsResponse {
    pb::EnqueueNotificationsResponse {
        accepted_count: result.accepted_count,
        duplicate_count: result.duplicate_count,
        enqueue_time: Some(time_to_pb(result.enqueue_time)),
    }
}

fn dead_letter_to_pb(dead: &Delivery) -> pb::DeadLetter {
    let error = dead.attempts.last().and_then(|attempt| attempt.error.clone());
    pb::DeadLetter {
        delivery: Some(delivery_to_pb(dead)),
        error: error.unwrap_or_default(),
        dead_time: dead.end_time.map(time_to_pb),
    }
}

fn delivery_to_pb(delivery: &Delivery) -> pb::Delivery {
    let next_attempt = delivery.due_time.filter(|_| delivery.state == DeliveryState::Queued);
    pb::Delivery {
        delivery_id: delivery.delivery_id.to_string(),
        job_id: delivery.job_id.to_string(),
        event_id: delivery.event_id.to_string(),
        template: template_to_pb(delivery.template).into(),
        channel: channel_to_pb(delivery.channel).into(),
        masked_recipient: delivery.email.masked(),
        state: state_to_pb(delivery.state).into(),
        attempts: delivery.attempts.iter().map(attempt_to_pb).collect(),
        next_attempt_time: next_attempt.map(time_to_pb),
        create_time: Some(time_to_pb(delivery.create_time)),
        end_time: delivery.end_time.map(time_to_pb),
    }
}

fn attempt_to_pb(attempt: &DeliveryAttempt) -> pb::DeliveryAttempt {
    pb::DeliveryAttempt {
        attempt_time: Some(time_to_pb(attempt.begin_time)),
        provider: attempt.provider.clone(),
        provider_message_id: attempt.provider_message_id.clone().unwrap_or_default(),
        error: attempt.error.clone().unwrap_or_default(),
    }
}

fn state_to_pb(state: DeliveryState) -> pb::DeliveryState {
    match state {
        DeliveryState::Queued => pb::DeliveryState::Queued,
        DeliveryState::Sending => pb::DeliveryState::Sending,
        DeliveryState::Delivered => pb::DeliveryState::Delivered,
        DeliveryState::Skipped => pb::DeliveryState::Skipped,
        DeliveryState::Dead => pb::DeliveryState::Dead,
    }
}
