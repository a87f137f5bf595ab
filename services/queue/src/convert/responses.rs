//! From the domain to the contract's answers.

use onsale_proto::queue::v1 as pb;

pub(crate) mod stats;

use super::{duration, timestamp};
use crate::{
    app::{
        get_position::EntryView,
        join_queue::Joined,
        list_neighbors::{Neighbor, Neighborhood},
        watch_queue::WatchMessage,
    },
    domain::{
        block::Block,
        entry::{Entry, EntryState, ExpireReason, Turn},
        estimate::Estimate,
        policy::{Policy, QueueMode},
        queue::{Close, CloseReason, QueueState, RemainingSector},
        watcher::Update,
    },
    engine::{snapshots::PublicSnapshot, tokens::GrantedTurn},
    store::queues::QueueAndLine,
};

/// Answer of `JoinQueue`.
pub(crate) fn joined(joined: Joined) -> pb::JoinQueueResponse {
    pb::JoinQueueResponse {
        standing: Some(standing(joined.standing)),
        queue_token: joined.queue_token,
        follow_method: pb::FollowMethod::Stream.into(),
    }
}

/// Answer of `LeaveQueue`; without an entry where none is stored.
pub(crate) fn left(left: Option<&Entry>) -> pb::LeaveQueueResponse {
    pb::LeaveQueueResponse { entry: left.map(entry) }
}

/// Answer of `CompleteTurn`; without an entry where none is stored.
pub(crate) fn completed(completed: Option<&Entry>) -> pb::CompleteTurnResponse {
    pb::CompleteTurnResponse { entry: completed.map(entry) }
}

/// Answer of `ValidateTurn`.
pub(crate) fn valid(entry_id: onsale_types::EntryId, turn: Turn) -> pb::ValidateTurnResponse {
    pb::ValidateTurnResponse {
        entry_id: entry_id.to_string(),
        expire_time: Some(timestamp(turn.expire_time)),
    }
}

/// Answer of `BlockCustomer`.
pub(crate) fn blocked(block: Block, entry_removed: bool) -> pb::BlockCustomerResponse {
    let Block { event_id, customer_id, note, block_time } = block;
    let blocked_customer = pb::BlockedCustomer {
        event_id: event_id.to_string(),
        customer_id: customer_id.to_string(),
        note,
        block_time: Some(timestamp(block_time)),
    };
    pb::BlockCustomerResponse { blocked_customer: Some(blocked_customer), entry_removed }
}

/// Answer of `ListNeighbors`.
pub(crate) fn neighbors(neighborhood: Neighborhood) -> pb::ListNeighborsResponse {
    let Neighborhood { revision, position, before, after } = neighborhood;
    pb::ListNeighborsResponse {
        revision,
        position,
        before: before.into_iter().map(neighbor).collect(),
        after: after.into_iter().map(neighbor).collect(),
    }
}

fn neighbor(neighbor: Neighbor) -> pb::Neighbor {
    let Neighbor { position, shown } = neighbor;
    pb::Neighbor { seq: shown.seq, position, display_name: shown.display_name, avatar_url: shown.avatar_url }
}

/// A standing.
pub(crate) fn standing(standing: EntryView) -> pb::Standing {
    pb::Standing {
        revision: standing.revision,
        entry: Some(entry(&standing.entry)),
        position: standing.position,
        estimate: standing.estimate.map(estimate),
        turn: standing.turn.map(turn),
        queue_state: queue_state(standing.queue_state).into(),
        next_poll_after: Some(duration(standing.next_poll_after)),
    }
}

/// Answer of `GetQueueSnapshot`.
pub(crate) fn snapshot(snapshot: &PublicSnapshot) -> pb::GetQueueSnapshotResponse {
    pb::GetQueueSnapshotResponse {
        revision: snapshot.current.line.revision,
        snapshot: Some(public(snapshot)),
        next_poll_after: Some(duration(snapshot.next_poll_after)),
    }
}

fn public(snapshot: &PublicSnapshot) -> pb::QueueSnapshot {
    let QueueAndLine { queue, line, now } = &snapshot.current;
    // A draft's time is not public.
    let open_time = queue.open_time.filter(|_| queue.is_active);
    pb::QueueSnapshot {
        event_id: queue.event_id.to_string(),
        state: queue_state(queue.state).into(),
        mode: queue_mode(queue.policy.mode).into(),
        open_time: open_time.map(timestamp),
        waiting_count: line.waiting_count,
        viewer_count: snapshot.viewer_count,
        average_service_time: line.service_time.map(duration),
        admitted_last_minute: u32::try_from(snapshot.admitted_last_minute).unwrap_or(u32::MAX),
        joins_paused: queue.joins_paused,
        close_reason: queue.close_reason().map(close_reason).unwrap_or_default().into(),
        remaining_sectors: remaining(queue.close.as_ref()),
        notice: queue.notice.clone(),
        snapshot_time: Some(timestamp(*now)),
    }
}

/// A queue, as its organizer sees it.
pub(crate) fn queue(current: &QueueAndLine) -> pb::Queue {
    let QueueAndLine { queue, line, .. } = current;
    pb::Queue {
        event_id: queue.event_id.to_string(),
        state: queue_state(queue.state).into(),
        policy: Some(policy(&queue.policy)),
        open_time: queue.open_time.map(timestamp),
        joins_paused: queue.joins_paused,
        close_reason: queue.close_reason().map(close_reason).unwrap_or_default().into(),
        remaining_sectors: remaining(queue.close.as_ref()),
        notice: queue.notice.clone(),
        revision: line.revision,
        update_time: Some(timestamp(queue.update_time)),
    }
}

/// One message of `WatchQueue`.
pub(crate) fn told(told: WatchMessage) -> pb::WatchQueueResponse {
    use pb::queue_update::Update as Message;
    let message = match told.update {
        Update::Position { position, estimate: range, state } => {
            Message::PositionUpdate(pb::PositionUpdate {
                seq: told.seq,
                position,
                estimate: range.map(estimate),
                queue_state: queue_state(state).into(),
            })
        }
        Update::Turn(_) => Message::TurnGranted(pb::TurnGranted { turn: told.turn.map(turn) }),
        Update::Moved { admitted_count, last_admitted_seq, waiting_count } => {
            Message::QueueMoved(pb::QueueMoved {
                admitted_count: u32::try_from(admitted_count).unwrap_or(u32::MAX),
                last_admitted_seq,
                waiting_count,
            })
        }
        Update::Snapshot => {
            Message::QueueSnapshot(told.snapshot.map(|taken| public(&taken)).unwrap_or_default())
        }
        Update::Paused { time, joins_paused, notice } => {
            Message::QueuePaused(pb::QueuePaused { pause_time: Some(timestamp(time)), joins_paused, notice })
        }
        Update::Resumed { time } => {
            Message::QueueResumed(pb::QueueResumed { resume_time: Some(timestamp(time)) })
        }
        Update::Closed { close, notice } => Message::QueueClosed(pb::QueueClosed {
            reason: close_reason(close.reason).into(),
            close_time: Some(timestamp(close.time)),
            remaining_sectors: remaining(Some(&close)),
            notice,
        }),
        Update::Expired { reason, time } => Message::EntryExpired(pb::EntryExpired {
            reason: expire_reason(reason).into(),
            expire_time: Some(timestamp(time)),
        }),
    };
    pb::WatchQueueResponse {
        update: Some(pb::QueueUpdate { revision: told.revision, update: Some(message) }),
    }
}

fn entry(entry: &Entry) -> pb::Entry {
    pb::Entry {
        entry_id: entry.entry_id.to_string(),
        event_id: entry.event_id.to_string(),
        seq: entry.seq,
        state: entry_state(entry.state).into(),
        join_time: Some(timestamp(entry.join_time)),
        display_name: entry.display_name.clone(),
        avatar_url: entry.avatar_url.clone(),
        expire_reason: entry.expire_reason.map(expire_reason).unwrap_or_default().into(),
        end_time: entry.end_time.map(timestamp),
    }
}

fn turn(granted: GrantedTurn) -> pb::Turn {
    let GrantedTurn { turn, token, checkout_url } = granted;
    pb::Turn {
        token,
        fencing_number: turn.fencing_number,
        grant_time: Some(timestamp(turn.grant_time)),
        expire_time: Some(timestamp(turn.expire_time)),
        checkout_url,
    }
}

pub(crate) fn estimate(estimate: Estimate) -> pb::Estimate {
    pb::Estimate { wait_min: Some(duration(estimate.wait_min)), wait_max: Some(duration(estimate.wait_max)) }
}

fn policy(policy: &Policy) -> pb::QueuePolicy {
    pb::QueuePolicy {
        mode: queue_mode(policy.mode).into(),
        admissions_per_minute: policy.admissions_per_minute,
        open_turns_max: policy.open_turns_max,
        turn_duration: Some(duration(policy.turn_duration)),
        idle_timeout: Some(duration(policy.idle_timeout)),
        waiting_max: policy.waiting_max,
        milestones: policy.milestones.falling().collect(),
        window_size: policy.window_size,
        active_windows: policy.active_windows,
        slide_interval: Some(duration(policy.slide_interval)),
    }
}

fn remaining(close: Option<&Close>) -> Vec<pb::RemainingSector> {
    let sector = |sector: &RemainingSector| pb::RemainingSector {
        sector_id: sector.sector_id.to_string(),
        name: sector.name.clone(),
        free_count: sector.free_count,
    };
    close.map(|close| close.remaining.iter().map(sector).collect()).unwrap_or_default()
}

pub(crate) const fn expire_reason(reason: ExpireReason) -> pb::ExpireReason {
    match reason {
        ExpireReason::NotSeen => pb::ExpireReason::NotSeen,
        ExpireReason::TurnExpired => pb::ExpireReason::TurnExpired,
        ExpireReason::Left => pb::ExpireReason::Left,
        ExpireReason::Blocked => pb::ExpireReason::Blocked,
        ExpireReason::QueueClosed => pb::ExpireReason::QueueClosed,
    }
}

const fn entry_state(state: EntryState) -> pb::EntryState {
    match state {
        EntryState::Waiting => pb::EntryState::Waiting,
        EntryState::Admitted => pb::EntryState::Admitted,
        EntryState::Completed => pb::EntryState::Completed,
        EntryState::Expired => pb::EntryState::Expired,
        EntryState::Left => pb::EntryState::Left,
    }
}

pub(crate) const fn queue_state(state: QueueState) -> pb::QueueState {
    match state {
        QueueState::Scheduled => pb::QueueState::Scheduled,
        QueueState::Open => pb::QueueState::Open,
        QueueState::Paused => pb::QueueState::Paused,
        QueueState::Closed => pb::QueueState::Closed,
    }
}

const fn queue_mode(mode: QueueMode) -> pb::QueueMode {
    match mode {
        QueueMode::Tracked => pb::QueueMode::Tracked,
        QueueMode::Windowed => pb::QueueMode::Windowed,
    }
}

const fn close_reason(reason: CloseReason) -> pb::CloseReason {
    match reason {
        CloseReason::SoldOut => pb::CloseReason::SoldOut,
        CloseReason::Ended => pb::CloseReason::Ended,
        CloseReason::Canceled => pb::CloseReason::Canceled,
        CloseReason::Organizer => pb::CloseReason::Organizer,
    }
}
