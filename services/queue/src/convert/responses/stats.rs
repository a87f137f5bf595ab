//! From live numbers to the contract's answers.

use onsale_proto::queue::v1 as pb;

use super as answers;
use super::super::{duration, timestamp};
use crate::{app::get_queue_stats::QueueStats, store::stats::JOINED_SPAN};

/// Answer of `GetQueueStats`.
pub(crate) fn answer(stats: &QueueStats) -> pb::GetQueueStatsResponse {
    pb::GetQueueStatsResponse { stats: Some(numbers(stats)), queue: Some(answers::queue(&stats.current)) }
}

/// One message of `WatchQueueStats`.
pub(crate) fn message(stats: &QueueStats) -> pb::WatchQueueStatsResponse {
    pb::WatchQueueStatsResponse { stats: Some(numbers(stats)) }
}

fn numbers(stats: &QueueStats) -> pb::QueueStats {
    let QueueStats { current, lately, audience } = stats;
    let line = &current.line;
    pb::QueueStats {
        event_id: current.queue.event_id.to_string(),
        stats_time: Some(timestamp(current.now)),
        revision: line.revision,
        state: answers::queue_state(current.queue.state).into(),
        waiting_count: line.waiting_count,
        open_turn_count: line.open_turn_count,
        viewer_count: audience.viewers,
        joined_per_second: small(per_second(lately.joined)),
        admitted_last_minute: small(lately.admitted),
        joined_count: line.last_seq,
        admitted_count: line.last_fencing_number,
        completed_count: line.completed_count,
        expired_count: line.expired_count,
        left_count: line.left_count,
        wait_p50: lately.wait_p50.map(duration),
        wait_p95: lately.wait_p95.map(duration),
        average_service_time: line.service_time.map(duration),
        move_log_lag: Some(duration(audience.lag)),
    }
}

/// To the nearest whole number.
fn per_second(joined: u64) -> u64 {
    let seconds = JOINED_SPAN.as_secs().max(1);
    joined.saturating_add(seconds / 2) / seconds
}

fn small(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
