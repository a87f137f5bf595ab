//! From the contract's requests to the domain: every field is checked, and everything that is wrong is said at once.

use std::time::Duration;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::queue::v1 as pb;
use onsale_types::{ClaimId, CustomerId, EventId, RequestId, SectorId, Timestamp};
use prost::Message;
use uuid::Uuid;

use super::read_timestamp;
use crate::{
    app::{control_queue::Control, get_position::EntryQuery, join_queue::Join},
    domain::{
        entry::TurnKey,
        milestone::Milestones,
        policy::{PolicyChange, QueueMode},
        queue::CloseReason,
    },
};

const DISPLAY_NAME_CHARS_MAX: usize = 64;
const AVATAR_URL_CHARS_MAX: usize = 512;
const NOTICE_CHARS_MAX: usize = 280;
const NOTE_CHARS_MAX: usize = 280;
const NEIGHBORS_MAX: u32 = 20;
const NEIGHBORS_DEFAULT: u32 = 5;
const REMAINING_SECTORS_MAX: usize = 200;
const RATE_MAX: u32 = 1_000_000;
const OPEN_TURNS_MAX: u32 = 1_000_000;
const WAITING_MAX: u64 = 100_000_000;
const TURN_SPAN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(2 * 60 * 60));
const IDLE_SPAN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
const STATS_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const STATS_DEFAULT: Duration = Duration::from_secs(2);
const WINDOW_SIZE_MAX: u32 = 1_000_000;
const ACTIVE_WINDOWS_MAX: u32 = 1_000;
const SLIDE_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));
/// A queue opens at most this far ahead.
const OPEN_AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// An organizer's request: what it is about, its id, and the wish.
#[derive(Clone, Debug)]
pub(crate) struct Steering {
    /// The event.
    pub(crate) event_id: EventId,
    /// The request's id.
    pub(crate) request_id: RequestId,
    /// The wish.
    pub(crate) control: Control,
}

/// A request that is about an event and may come twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    /// The event.
    pub(crate) event_id: EventId,
    /// The request's id.
    pub(crate) request_id: RequestId,
}

/// `JoinQueue`, of this customer.
pub(crate) fn join(customer_id: CustomerId, request: &pb::JoinQueueRequest) -> Result<Join, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    check_text(&mut violations, "display_name", &request.display_name, DISPLAY_NAME_CHARS_MAX);
    check_text(&mut violations, "avatar_url", &request.avatar_url, AVATAR_URL_CHARS_MAX);
    if !request.avatar_url.is_empty() && !is_https(&request.avatar_url) {
        violations.push("avatar_url", "must be an https URL");
    }
    // Two requests with one id and different bodies are a mistake of the caller.
    let fingerprint = Uuid::new_v5(&Uuid::NAMESPACE_OID, &request.encode_to_vec());
    violations.build(|| {
        let Named { event_id, request_id } = named?;
        Some(Join {
            event_id,
            customer_id,
            request_id,
            fingerprint,
            display_name: request.display_name.clone(),
            avatar_url: request.avatar_url.clone(),
        })
    })
}

/// A question of this customer about their own entry.
pub(crate) fn own_entry(
    customer_id: CustomerId,
    event_id: &str,
    queue_token: String,
) -> Result<EntryQuery, InvalidFields> {
    let event_id = self::event_id(event_id)?;
    Ok(EntryQuery { event_id, customer_id, queue_token })
}

/// An event's id alone.
pub(crate) fn event_id(event_id: &str) -> Result<EventId, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(event_id));
    violations.build(|| event_id)
}

/// `LeaveQueue`.
pub(crate) fn leave(request: &pb::LeaveQueueRequest) -> Result<Named, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    violations.build(|| named)
}

/// `ListNeighbors`: of which event, and how many on either side.
pub(crate) fn neighbors(request: &pb::ListNeighborsRequest) -> Result<(EventId, u32), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let wanted = if request.neighbors_max == 0 { NEIGHBORS_DEFAULT } else { request.neighbors_max };
    let neighbors_max = violations.check("neighbors_max", at_most(wanted, NEIGHBORS_MAX));
    violations.build(|| Some((event_id?, neighbors_max?)))
}

/// `WatchQueueStats`: of which event, and how often.
pub(crate) fn watch_stats(
    request: &pb::WatchQueueStatsRequest,
) -> Result<(EventId, Duration), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let interval = violations.check("interval", optional_span(request.interval, STATS_SPAN));
    violations.build(|| Some((event_id?, interval?.unwrap_or(STATS_DEFAULT))))
}

/// `BlockCustomer`, and whom.
pub(crate) fn block(request: &pb::BlockCustomerRequest) -> Result<(Named, CustomerId), InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    check_text(&mut violations, "note", &request.note, NOTE_CHARS_MAX);
    violations.build(|| Some((named?, customer_id?)))
}

/// `UnblockCustomer`, and whom.
pub(crate) fn unblock(request: &pb::UnblockCustomerRequest) -> Result<(Named, CustomerId), InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    violations.build(|| Some((named?, customer_id?)))
}

/// `ValidateTurn`.
pub(crate) fn validate_turn(request: &pb::ValidateTurnRequest) -> Result<TurnKey, InvalidFields> {
    let mut violations = Violations::new();
    let turn = turn_name(&mut violations, &request.event_id, &request.customer_id, request.fencing_number);
    violations.build(|| turn)
}

/// `CompleteTurn`.
pub(crate) fn complete_turn(
    request: &pb::CompleteTurnRequest,
) -> Result<(TurnKey, ClaimId, RequestId), InvalidFields> {
    let mut violations = Violations::new();
    let turn = turn_name(&mut violations, &request.event_id, &request.customer_id, request.fencing_number);
    let claim_id = violations.check("claim_id", ClaimId::parse(&request.claim_id));
    let request_id = violations.check("request_id", RequestId::parse(&request.request_id));
    violations.build(|| Some((turn?, claim_id?, request_id?)))
}

/// `OpenQueue`, at `now`.
pub(crate) fn open(request: &pb::OpenQueueRequest, now: Timestamp) -> Result<Steering, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    let open_time = match request.open_time {
        Some(time) => {
            let time = read_timestamp(time).ok_or("is not a time");
            let time = time.and_then(|time| {
                let is_near = time.saturating_since(now) <= OPEN_AHEAD_MAX;
                if is_near { Ok(time) } else { Err("must be at most one year ahead") }
            });
            violations.check("open_time", time)
        }
        None => None,
    };
    steering(violations, named, || Some(Control::Open { open_time }))
}

/// `PauseQueue`.
pub(crate) fn pause(request: &pb::PauseQueueRequest) -> Result<Steering, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    check_text(&mut violations, "notice", &request.notice, NOTICE_CHARS_MAX);
    let (joins_paused, notice) = (request.joins_paused, request.notice.clone());
    steering(violations, named, || Some(Control::Pause { joins_paused, notice }))
}

/// `ResumeQueue`.
pub(crate) fn resume(request: &pb::ResumeQueueRequest) -> Result<Steering, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    steering(violations, named, || Some(Control::Resume))
}

/// `CloseQueue`.
pub(crate) fn close(request: &pb::CloseQueueRequest) -> Result<Steering, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    check_text(&mut violations, "notice", &request.notice, NOTICE_CHARS_MAX);
    let reason = pb::CloseReason::try_from(request.reason).map_err(|_unknown| "is not a reason to close");
    let reason = violations.check("reason", reason).map(close_reason);
    if request.remaining_sector_ids.len() > REMAINING_SECTORS_MAX {
        violations.push("remaining_sector_ids", format!("must be at most {REMAINING_SECTORS_MAX}"));
    }
    let mut remaining = Vec::new();
    for (index, sector_id) in request.remaining_sector_ids.iter().take(REMAINING_SECTORS_MAX).enumerate() {
        let field = format!("remaining_sector_ids[{index}]");
        remaining.extend(violations.check(field, SectorId::parse(sector_id)));
    }
    let notice = request.notice.clone();
    steering(violations, named, || Some(Control::Close { reason: reason?, remaining, notice }))
}

/// `UpdateQueuePolicy`.
pub(crate) fn update_policy(request: &pb::UpdateQueuePolicyRequest) -> Result<Steering, InvalidFields> {
    let mut violations = Violations::new();
    let named = named(&mut violations, &request.event_id, &request.request_id);
    let change = match &request.policy {
        Some(policy) => {
            let paths = request.update_mask.as_ref().map(|mask| mask.paths.as_slice());
            policy_change(&mut violations, policy, paths)
        }
        None => {
            violations.push("policy", "is required");
            PolicyChange::default()
        }
    };
    steering(violations, named, || Some(Control::Retune(change)))
}

/// Every field of a policy that a mask may name.
const POLICY_FIELDS: [&str; 10] = [
    "mode",
    "admissions_per_minute",
    "open_turns_max",
    "turn_duration",
    "idle_timeout",
    "waiting_max",
    "milestones",
    "window_size",
    "active_windows",
    "slide_interval",
];

fn policy_change(
    violations: &mut Violations,
    policy: &pb::QueuePolicy,
    paths: Option<&[String]>,
) -> PolicyChange {
    for path in paths.unwrap_or_default() {
        if !POLICY_FIELDS.contains(&path.as_str()) {
            violations.push("update_mask", format!("has no field {path:?}"));
        }
    }
    // Named by the mask; without one, set to something.
    let is_meant = |field: &str, is_set: bool| match paths {
        Some(paths) if !paths.is_empty() => paths.iter().any(|path| path == field),
        Some(_) | None => is_set,
    };
    let mut change = PolicyChange::default();
    if is_meant("admissions_per_minute", policy.admissions_per_minute != 0) {
        let rate = at_most(policy.admissions_per_minute, RATE_MAX);
        change.admissions_per_minute = violations.check("policy.admissions_per_minute", rate).map(Some);
    }
    if is_meant("open_turns_max", policy.open_turns_max != 0) {
        let turns = at_most(policy.open_turns_max, OPEN_TURNS_MAX);
        change.open_turns_max = violations.check("policy.open_turns_max", turns).map(Some);
    }
    if is_meant("turn_duration", policy.turn_duration.is_some()) {
        let span = optional_span(policy.turn_duration, TURN_SPAN);
        change.turn_duration = violations.check("policy.turn_duration", span);
    }
    if is_meant("idle_timeout", policy.idle_timeout.is_some()) {
        let span = optional_span(policy.idle_timeout, IDLE_SPAN);
        change.idle_timeout = violations.check("policy.idle_timeout", span);
    }
    if is_meant("waiting_max", policy.waiting_max != 0) {
        let is_good = (1..=WAITING_MAX).contains(&policy.waiting_max);
        let waiting = is_good.then_some(policy.waiting_max);
        let waiting = waiting.ok_or_else(|| format!("must be from 1 to {WAITING_MAX}"));
        change.waiting_max = violations.check("policy.waiting_max", waiting).map(Some);
    }
    line_change(violations, policy, &is_meant, &mut change);
    change
}

/// The half of a policy that says how the line is kept.
fn line_change(
    violations: &mut Violations,
    policy: &pb::QueuePolicy,
    is_meant: &impl Fn(&str, bool) -> bool,
    change: &mut PolicyChange,
) {
    if is_meant("mode", policy.mode != i32::from(pb::QueueMode::Unspecified)) {
        let mode = pb::QueueMode::try_from(policy.mode).map_err(|_unknown| "is not a mode");
        change.mode = violations.check("policy.mode", mode).map(queue_mode);
    }
    // Named and empty: no pushes.
    if is_meant("milestones", !policy.milestones.is_empty()) {
        let milestones = Milestones::try_from(policy.milestones.as_slice());
        change.milestones = violations.check("policy.milestones", milestones).map(Some);
    }
    if is_meant("window_size", policy.window_size != 0) {
        let size = from_one(policy.window_size, WINDOW_SIZE_MAX);
        change.window_size = violations.check("policy.window_size", size).map(Some);
    }
    if is_meant("active_windows", policy.active_windows != 0) {
        let windows = from_one(policy.active_windows, ACTIVE_WINDOWS_MAX);
        change.active_windows = violations.check("policy.active_windows", windows).map(Some);
    }
    if is_meant("slide_interval", policy.slide_interval.is_some()) {
        let span = optional_span(policy.slide_interval, SLIDE_SPAN);
        change.slide_interval = violations.check("policy.slide_interval", span);
    }
}

fn at_most(value: u32, max: u32) -> Result<u32, String> {
    if value <= max { Ok(value) } else { Err(format!("must be at most {max}")) }
}

fn from_one(value: u32, max: u32) -> Result<u32, String> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(format!("must be from 1 to {max}")) }
}

fn optional_span(
    span: Option<prost_types::Duration>,
    (min, max): (Duration, Duration),
) -> Result<Option<Duration>, String> {
    let Some(span) = span else { return Ok(None) };
    match Duration::try_from(span) {
        Ok(span) if (min..=max).contains(&span) => Ok(Some(span)),
        _ => Err(format!("must be from {} s to {} s", min.as_secs(), max.as_secs())),
    }
}

fn steering(
    violations: Violations,
    named: Option<Named>,
    control: impl FnOnce() -> Option<Control>,
) -> Result<Steering, InvalidFields> {
    violations.build(|| {
        let Named { event_id, request_id } = named?;
        Some(Steering { event_id, request_id, control: control()? })
    })
}

fn named(violations: &mut Violations, event_id: &str, request_id: &str) -> Option<Named> {
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let request_id = violations.check("request_id", RequestId::parse(request_id));
    Some(Named { event_id: event_id?, request_id: request_id? })
}

fn turn_name(
    violations: &mut Violations,
    event_id: &str,
    customer_id: &str,
    fencing_number: u64,
) -> Option<TurnKey> {
    let event_id = violations.check("event_id", EventId::parse(event_id));
    let customer_id = violations.check("customer_id", CustomerId::parse(customer_id));
    // Beyond what the store counts to, nobody has one.
    let is_number = (1..=i64::MAX.unsigned_abs()).contains(&fencing_number);
    let number = if is_number { Ok(fencing_number) } else { Err("is not a fencing number") };
    let fencing_number = violations.check("fencing_number", number);
    Some(TurnKey { event_id: event_id?, customer_id: customer_id?, fencing_number: fencing_number? })
}

fn close_reason(reason: pb::CloseReason) -> CloseReason {
    match reason {
        pb::CloseReason::Unspecified | pb::CloseReason::SoldOut => CloseReason::SoldOut,
        pb::CloseReason::Ended => CloseReason::Ended,
        pb::CloseReason::Canceled => CloseReason::Canceled,
        pb::CloseReason::Organizer => CloseReason::Organizer,
    }
}

fn queue_mode(mode: pb::QueueMode) -> QueueMode {
    match mode {
        pb::QueueMode::Unspecified => QueueMode::default(),
        pb::QueueMode::Tracked => QueueMode::Tracked,
        pb::QueueMode::Windowed => QueueMode::Windowed,
    }
}

fn check_text(violations: &mut Violations, field: &str, text: &str, chars_max: usize) {
    if text.chars().count() > chars_max {
        violations.push(field, format!("must be at most {chars_max} characters"));
    }
    if text.chars().any(char::is_control) {
        violations.push(field, "must have no control characters");
    }
}

fn is_https(url: &str) -> bool {
    let host = url.strip_prefix("https://").and_then(|rest| rest.split(['/', '?', '#']).next());
    host.is_some_and(|host| !host.is_empty()) && !url.contains(char::is_whitespace)
}
