//! Responses to customers and to Claim.

pub(crate) mod admin;

use onsale_proto::{
    convert::{duration_to_pb, time_to_pb},
    queue::v1 as pb,
};
use onsale_storage::idempotency::{Answer, Method};
use prost::Message;

use crate::{
    domain::{
        entry::{Entry, EntryState, ExpireReason},
        entry_view::EntryView,
        estimate::Estimate,
        join::Joined,
        neighborhood::{Neighbor, Neighborhood},
        policy::QueueMode,
        queue::{Close, CloseReason, QueueAndLine, QueueState, RemainingSector},
        snapshot::PublicSnapshot,
        turn::{GrantedTurn, ValidTurn},
        watcher::{Update, WatchMessage},
    },
    error::Error,
};

pub(crate) const LEAVE_QUEUE: Method<Option<Entry>> =
    Method::new("LeaveQueue", |left| left_entry(left).encode_to_vec());
pub(crate) const COMPLETE_TURN: Method<Option<Entry>> =
    Method::new("CompleteTurn", |completed| completed_entry(completed).encode_to_vec());

/// Builds the response of `JoinQueue`.
pub(crate) fn join_queue(joined: Joined) -> pb::JoinQueueResponse {
    pb::JoinQueueResponse {
        standing: Some(entry_view(joined.view)),
        queue_token: joined.queue_token,
        follow_method: pb::FollowMethod::Stream.into(),
    }
}

/// Builds the response of `GetPosition`.
pub(crate) fn get_position(view: EntryView) -> pb::GetPositionResponse {
    pb::GetPositionResponse { standing: Some(entry_view(view)) }
}

/// Builds the response of `Heartbeat`.
pub(crate) fn heartbeat(view: EntryView) -> pb::HeartbeatResponse {
    pb::HeartbeatResponse { standing: Some(entry_view(view)) }
}

/// Builds the response of `LeaveQueue`. It has no entry if the queue stores none.
pub(crate) fn leave_queue(answer: Answer<Option<Entry>>) -> Result<pb::LeaveQueueResponse, Error> {
    respond(answer, left_entry)
}

/// Builds the response of `CompleteTurn`. It has no entry if the queue stores none.
pub(crate) fn complete_turn(answer: Answer<Option<Entry>>) -> Result<pb::CompleteTurnResponse, Error> {
    respond(answer, completed_entry)
}

/// Builds the response of `ValidateTurn`.
pub(crate) fn validate_turn(valid: ValidTurn) -> pb::ValidateTurnResponse {
    pb::ValidateTurnResponse {
        entry_id: valid.entry_id.to_string(),
        expire_time: Some(time_to_pb(valid.turn.expire_time)),
    }
}

/// Builds the response of `ListNeighbors`.
pub(crate) fn list_neighbors(neighborhood: Neighborhood) -> pb::ListNeighborsResponse {
    let Neighborhood { revision, position, before, after } = neighborhood;
    pb::ListNeighborsResponse {
        revision,
        position,
        before: before.into_iter().map(neighbor).collect(),
        after: after.into_iter().map(neighbor).collect(),
    }
}

/// Builds the response of `GetQueueSnapshot`.
pub(crate) fn get_queue_snapshot(snapshot: &PublicSnapshot) -> pb::GetQueueSnapshotResponse {
    pb::GetQueueSnapshotResponse {
        revision: snapshot.current.line.revision,
        snapshot: Some(queue_snapshot(snapshot)),
        next_poll_after: Some(duration_to_pb(snapshot.next_poll_after)),
    }
}

/// Builds one message of `WatchQueue`.
pub(crate) fn watch_queue(message: WatchMessage) -> pb::WatchQueueResponse {
    use pb::queue_update::Update as Content;
    let content = match message.update {
        Update::Position { position, estimate: range, state } => {
            Content::PositionUpdate(pb::PositionUpdate {
                seq: message.seq,
                position,
                estimate: range.map(estimate),
                queue_state: queue_state(state).into(),
            })
        }
        Update::Turn(_) => Content::TurnGranted(pb::TurnGranted { turn: message.turn.map(turn) }),
        Update::Moved { admitted_count, last_admitted_seq, waiting_count } => {
            Content::QueueMoved(pb::QueueMoved {
                admitted_count: to_u32(admitted_count),
                last_admitted_seq,
                waiting_count,
            })
        }
        Update::Snapshot => Content::QueueSnapshot(
            message.snapshot.map(|snapshot| queue_snapshot(&snapshot)).unwrap_or_default(),
        ),
        Update::Paused { time, joins_paused, notice } => {
            Content::QueuePaused(pb::QueuePaused { pause_time: Some(time_to_pb(time)), joins_paused, notice })
        }
        Update::Resumed { time } => {
            Content::QueueResumed(pb::QueueResumed { resume_time: Some(time_to_pb(time)) })
        }
        Update::Closed { close, notice } => Content::QueueClosed(pb::QueueClosed {
            reason: close_reason(close.reason).into(),
            close_time: Some(time_to_pb(close.time)),
            remaining_sectors: remaining_sectors(Some(&close)),
            notice,
        }),
        Update::Expired { reason, time } => Content::EntryExpired(pb::EntryExpired {
            reason: expire_reason(reason).into(),
            expire_time: Some(time_to_pb(time)),
        }),
    };
    pb::WatchQueueResponse {
        update: Some(pb::QueueUpdate { revision: message.revision, update: Some(content) }),
    }
}

/// Builds the response to a new result, or decodes the stored response of a repeated request.
fn respond<R, M: Message + Default>(answer: Answer<R>, encode: fn(&R) -> M) -> Result<M, Error> {
    Ok(answer.into_response(encode, |bytes| M::decode(bytes))?)
}

fn left_entry(left: &Option<Entry>) -> pb::LeaveQueueResponse {
    pb::LeaveQueueResponse { entry: left.as_ref().map(entry) }
}

fn completed_entry(completed: &Option<Entry>) -> pb::CompleteTurnResponse {
    pb::CompleteTurnResponse { entry: completed.as_ref().map(entry) }
}

fn neighbor(neighbor: Neighbor) -> pb::Neighbor {
    let Neighbor { position, profile } = neighbor;
    pb::Neighbor {
        seq: profile.seq,
        position,
        display_name: profile.display_name,
        avatar_url: profile.avatar_url,
    }
}

fn entry_view(view: EntryView) -> pb::Standing {
    pb::Standing {
        revision: view.revision,
        entry: Some(entry(&view.entry)),
        position: view.position,
        estimate: view.estimate.map(estimate),
        turn: view.turn.map(turn),
        queue_state: queue_state(view.queue_state).into(),
        next_poll_after: Some(duration_to_pb(view.next_poll_after)),
    }
}

fn queue_snapshot(snapshot: &PublicSnapshot) -> pb::QueueSnapshot {
    let QueueAndLine { queue, line, now } = &snapshot.current;
    // The opening time of a draft is not public.
    let open_time = queue.open_time.filter(|_| queue.is_active);
    pb::QueueSnapshot {
        event_id: queue.event_id.to_string(),
        state: queue_state(queue.state).into(),
        mode: queue_mode(queue.policy.mode).into(),
        open_time: open_time.map(time_to_pb),
        waiting_count: line.waiting_count,
        viewer_count: snapshot.viewer_count,
        average_service_time: line.service_time.map(duration_to_pb),
        admitted_last_minute: to_u32(snapshot.admitted_last_minute),
        joins_paused: queue.joins_paused,
        close_reason: queue.close_reason().map(close_reason).unwrap_or_default().into(),
        remaining_sectors: remaining_sectors(queue.close.as_ref()),
        notice: queue.notice.clone(),
        snapshot_time: Some(time_to_pb(*now)),
    }
}

fn entry(entry: &Entry) -> pb::Entry {
    pb::Entry {
        entry_id: entry.entry_id.to_string(),
        event_id: entry.event_id.to_string(),
        seq: entry.seq,
        state: entry_state(entry.state).into(),
        join_time: Some(time_to_pb(entry.join_time)),
        display_name: entry.display_name.clone(),
        avatar_url: entry.avatar_url.clone(),
        expire_reason: entry.expire_reason.map(expire_reason).unwrap_or_default().into(),
        end_time: entry.end_time.map(time_to_pb),
    }
}

fn turn(granted: GrantedTurn) -> pb::Turn {
    let GrantedTurn { turn, token, checkout_url } = granted;
    pb::Turn {
        token,
        fencing_number: turn.fencing_number,
        grant_time: Some(time_to_pb(turn.grant_time)),
        expire_time: Some(time_to_pb(turn.expire_time)),
        checkout_url,
    }
}

pub(super) fn estimate(estimate: Estimate) -> pb::Estimate {
    pb::Estimate {
        wait_min: Some(duration_to_pb(estimate.wait_min)),
        wait_max: Some(duration_to_pb(estimate.wait_max)),
    }
}

fn remaining_sectors(close: Option<&Close>) -> Vec<pb::RemainingSector> {
    let sector = |sector: &RemainingSector| pb::RemainingSector {
        sector_id: sector.sector_id.to_string(),
        name: sector.name.clone(),
        free_count: sector.free_count,
    };
    close.map(|close| close.remaining.iter().map(sector).collect()).unwrap_or_default()
}

/// Returns a count for a 32-bit field; a larger one becomes `u32::MAX`.
fn to_u32(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

pub(super) const fn expire_reason(reason: ExpireReason) -> pb::ExpireReason {
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

const fn queue_state(state: QueueState) -> pb::QueueState {
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
