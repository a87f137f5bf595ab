//! The fields of `UpdateQueuePolicy`.

use std::time::Duration;

use onsale_kit::error::Violations;
use onsale_proto::queue::v1 as pb;

use super::{at_most, optional_span};
use crate::domain::{
    milestone::Milestones,
    policy::{PolicyChange, QueueMode},
};

const RATE_MAX: u32 = 1_000_000;
const OPEN_TURNS_MAX: u32 = 1_000_000;
const WAITING_MAX: u64 = 100_000_000;
const TURN_SPAN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(2 * 60 * 60));
const IDLE_SPAN: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
const WINDOW_SIZE_MAX: u32 = 1_000_000;
const ACTIVE_WINDOWS_MAX: u32 = 1_000;
const SLIDE_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60 * 60));

/// The fields of a policy that an update mask may name.
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

/// Reads the fields that an update changes.
pub(super) fn policy_change(
    violations: &mut Violations,
    policy: &pb::QueuePolicy,
    paths: Option<&[String]>,
) -> PolicyChange {
    for path in paths.unwrap_or_default() {
        if !POLICY_FIELDS.contains(&path.as_str()) {
            violations.push("update_mask", format!("has no field {path:?}"));
        }
    }
    // With a mask the fields that it names, without one the fields that are set.
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

/// Reads the fields about the line: mode, milestones and window.
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
    // A mask that names an empty list turns the pushes off.
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

fn from_one(value: u32, max: u32) -> Result<u32, String> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(format!("must be from 1 to {max}")) }
}

fn queue_mode(mode: pb::QueueMode) -> QueueMode {
    match mode {
        pb::QueueMode::Unspecified => QueueMode::default(),
        pb::QueueMode::Tracked => QueueMode::Tracked,
        pb::QueueMode::Windowed => QueueMode::Windowed,
    }
}
