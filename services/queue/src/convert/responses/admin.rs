//! Responses to organizers.

use onsale_proto::{
    convert::{duration_to_pb, time_to_pb},
    queue::v1 as pb,
};
use onsale_storage::idempotency::{Answer, Method};
use prost::Message;

use super::{close_reason, queue_mode, queue_state, remaining_sectors, respond, to_u32};
use crate::{
    domain::{
        block::{Block, Blocked},
        policy::Policy,
        queue::QueueAndLine,
        stats::QueueStats,
    },
    error::Error,
};

pub(crate) const OPEN_QUEUE: Method<QueueAndLine> =
    Method::new("OpenQueue", |current| opened(current).encode_to_vec());
pub(crate) const PAUSE_QUEUE: Method<QueueAndLine> =
    Method::new("PauseQueue", |current| paused(current).encode_to_vec());
pub(crate) const RESUME_QUEUE: Method<QueueAndLine> =
    Method::new("ResumeQueue", |current| resumed(current).encode_to_vec());
pub(crate) const CLOSE_QUEUE: Method<QueueAndLine> =
    Method::new("CloseQueue", |current| closed(current).encode_to_vec());
pub(crate) const UPDATE_QUEUE_POLICY: Method<QueueAndLine> =
    Method::new("UpdateQueuePolicy", |current| updated(current).encode_to_vec());
pub(crate) const BLOCK_CUSTOMER: Method<Blocked> =
    Method::new("BlockCustomer", |outcome| blocked(outcome).encode_to_vec());
pub(crate) const UNBLOCK_CUSTOMER: Method<()> =
    Method::new("UnblockCustomer", |()| pb::UnblockCustomerResponse {}.encode_to_vec());

/// Builds the response of `OpenQueue`.
pub(crate) fn open_queue(answer: Answer<QueueAndLine>) -> Result<pb::OpenQueueResponse, Error> {
    respond(answer, opened)
}

/// Builds the response of `PauseQueue`.
pub(crate) fn pause_queue(answer: Answer<QueueAndLine>) -> Result<pb::PauseQueueResponse, Error> {
    respond(answer, paused)
}

/// Builds the response of `ResumeQueue`.
pub(crate) fn resume_queue(answer: Answer<QueueAndLine>) -> Result<pb::ResumeQueueResponse, Error> {
    respond(answer, resumed)
}

/// Builds the response of `CloseQueue`.
pub(crate) fn close_queue(answer: Answer<QueueAndLine>) -> Result<pb::CloseQueueResponse, Error> {
    respond(answer, closed)
}

/// Builds the response of `UpdateQueuePolicy`.
pub(crate) fn update_queue_policy(
    answer: Answer<QueueAndLine>,
) -> Result<pb::UpdateQueuePolicyResponse, Error> {
    respond(answer, updated)
}

/// Builds the response of `BlockCustomer`.
pub(crate) fn block_customer(answer: Answer<Blocked>) -> Result<pb::BlockCustomerResponse, Error> {
    respond(answer, blocked)
}

/// Builds the response of `UnblockCustomer`.
pub(crate) fn unblock_customer(answer: Answer<()>) -> Result<pb::UnblockCustomerResponse, Error> {
    respond(answer, |()| pb::UnblockCustomerResponse {})
}

/// Builds the response of `GetQueueStats`.
pub(crate) fn get_queue_stats(stats: &QueueStats) -> pb::GetQueueStatsResponse {
    pb::GetQueueStatsResponse { stats: Some(queue_stats(stats)), queue: Some(queue(&stats.current)) }
}

/// Builds one message of `WatchQueueStats`.
pub(crate) fn watch_queue_stats(stats: &QueueStats) -> pb::WatchQueueStatsResponse {
    pb::WatchQueueStatsResponse { stats: Some(queue_stats(stats)) }
}

fn opened(current: &QueueAndLine) -> pb::OpenQueueResponse {
    pb::OpenQueueResponse { queue: Some(queue(current)) }
}

fn paused(current: &QueueAndLine) -> pb::PauseQueueResponse {
    pb::PauseQueueResponse { queue: Some(queue(current)) }
}

fn resumed(current: &QueueAndLine) -> pb::ResumeQueueResponse {
    pb::ResumeQueueResponse { queue: Some(queue(current)) }
}

fn closed(current: &QueueAndLine) -> pb::CloseQueueResponse {
    pb::CloseQueueResponse { queue: Some(queue(current)) }
}

fn updated(current: &QueueAndLine) -> pb::UpdateQueuePolicyResponse {
    pb::UpdateQueuePolicyResponse { queue: Some(queue(current)) }
}

fn blocked(blocked: &Blocked) -> pb::BlockCustomerResponse {
    let Block { event_id, customer_id, note, block_time } = &blocked.block;
    let blocked_customer = pb::BlockedCustomer {
        event_id: event_id.to_string(),
        customer_id: customer_id.to_string(),
        note: note.clone(),
        block_time: Some(time_to_pb(*block_time)),
    };
    pb::BlockCustomerResponse {
        blocked_customer: Some(blocked_customer),
        entry_removed: blocked.entry_removed,
    }
}

fn queue(current: &QueueAndLine) -> pb::Queue {
    let QueueAndLine { queue, line, .. } = current;
    pb::Queue {
        event_id: queue.event_id.to_string(),
        state: queue_state(queue.state).into(),
        policy: Some(policy(&queue.policy)),
        open_time: queue.open_time.map(time_to_pb),
        joins_paused: queue.joins_paused,
        close_reason: queue.close_reason().map(close_reason).unwrap_or_default().into(),
        remaining_sectors: remaining_sectors(queue.close.as_ref()),
        notice: queue.notice.clone(),
        revision: line.revision,
        update_time: Some(time_to_pb(queue.update_time)),
    }
}

fn policy(policy: &Policy) -> pb::QueuePolicy {
    pb::QueuePolicy {
        mode: queue_mode(policy.mode).into(),
        admissions_per_minute: policy.admissions_per_minute,
        open_turns_max: policy.open_turns_max,
        turn_duration: Some(duration_to_pb(policy.turn_duration)),
        idle_timeout: Some(duration_to_pb(policy.idle_timeout)),
        waiting_max: policy.waiting_max,
        milestones: policy.milestones.falling().collect(),
        window_size: policy.window_size,
        active_windows: policy.active_windows,
        slide_interval: Some(duration_to_pb(policy.slide_interval)),
    }
}

fn queue_stats(stats: &QueueStats) -> pb::QueueStats {
    let QueueStats { current, recent, viewers } = stats;
    let line = &current.line;
    pb::QueueStats {
        event_id: current.queue.event_id.to_string(),
        stats_time: Some(time_to_pb(current.now)),
        revision: line.revision,
        state: queue_state(current.queue.state).into(),
        waiting_count: line.waiting_count,
        open_turn_count: line.open_turn_count,
        viewer_count: viewers.viewers,
        joined_per_second: to_u32(recent.joined_per_second()),
        admitted_last_minute: to_u32(recent.admitted),
        joined_count: line.last_seq,
        admitted_count: line.last_fencing_number,
        completed_count: line.completed_count,
        expired_count: line.expired_count,
        left_count: line.left_count,
        wait_p50: recent.wait_p50.map(duration_to_pb),
        wait_p95: recent.wait_p95.map(duration_to_pb),
        average_service_time: line.service_time.map(duration_to_pb),
        move_log_lag: Some(duration_to_pb(viewers.lag)),
    }
}
