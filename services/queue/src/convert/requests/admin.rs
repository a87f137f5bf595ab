//! Requests of organizers.

use std::time::Duration;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::queue::v1 as pb;
use onsale_storage::idempotency::Request;
use onsale_types::{CustomerId, EventId, SectorId, Timestamp};
use prost::Message;

use super::{
    super::responses::admin::{
        BLOCK_CUSTOMER, CLOSE_QUEUE, OPEN_QUEUE, PAUSE_QUEUE, RESUME_QUEUE, UNBLOCK_CUSTOMER,
        UPDATE_QUEUE_POLICY,
    },
    EventRequest, check_text, event_request, optional_span, policy,
};
use crate::domain::{
    block::Blocked,
    control::{CloseQueue, OpenQueue, PauseQueue, check_open_time},
    policy::PolicyChange,
    queue::{CloseReason, QueueAndLine},
};

const NOTICE_CHARS_MAX: usize = 280;
const NOTE_CHARS_MAX: usize = 280;
const REMAINING_SECTORS_MAX: usize = 200;
const STATS_SPAN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
const STATS_DEFAULT: Duration = Duration::from_secs(2);

/// A command with its idempotent request.
type Command<'a, C> = Result<(C, Request<'a, QueueAndLine>), InvalidFields>;

/// Reads `OpenQueue` of `caller` at `now`.
pub(crate) fn open_queue<'a>(
    caller: &'a str,
    request: &pb::OpenQueueRequest,
    now: Timestamp,
) -> Command<'a, OpenQueue> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    let open_time = match violations.optional_time("open_time", request.open_time) {
        Some(Some(time)) => violations.check("open_time", check_open_time(time, now)),
        Some(None) | None => None,
    };
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = OPEN_QUEUE.request(caller, request_id, &request.encode_to_vec());
        Some((OpenQueue { event_id, open_time }, once))
    })
}

/// Reads `PauseQueue` of `caller`.
pub(crate) fn pause_queue<'a>(caller: &'a str, request: &pb::PauseQueueRequest) -> Command<'a, PauseQueue> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    check_text(&mut violations, "notice", &request.notice, NOTICE_CHARS_MAX);
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = PAUSE_QUEUE.request(caller, request_id, &request.encode_to_vec());
        let (joins_paused, notice) = (request.joins_paused, request.notice.clone());
        Some((PauseQueue { event_id, joins_paused, notice }, once))
    })
}

/// Reads `ResumeQueue` of `caller`.
pub(crate) fn resume_queue<'a>(caller: &'a str, request: &pb::ResumeQueueRequest) -> Command<'a, EventId> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        Some((event_id, RESUME_QUEUE.request(caller, request_id, &request.encode_to_vec())))
    })
}

/// Reads `CloseQueue` of `caller`.
pub(crate) fn close_queue<'a>(caller: &'a str, request: &pb::CloseQueueRequest) -> Command<'a, CloseQueue> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
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
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = CLOSE_QUEUE.request(caller, request_id, &request.encode_to_vec());
        let notice = request.notice.clone();
        Some((CloseQueue { event_id, reason: reason?, remaining, notice }, once))
    })
}

/// Reads `UpdateQueuePolicy` of `caller`.
pub(crate) fn update_queue_policy<'a>(
    caller: &'a str,
    request: &pb::UpdateQueuePolicyRequest,
) -> Command<'a, (EventId, PolicyChange)> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    let change = match &request.policy {
        Some(policy) => {
            let paths = request.update_mask.as_ref().map(|mask| mask.paths.as_slice());
            policy::policy_change(&mut violations, policy, paths)
        }
        None => {
            violations.push("policy", "is required");
            PolicyChange::default()
        }
    };
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = UPDATE_QUEUE_POLICY.request(caller, request_id, &request.encode_to_vec());
        Some(((event_id, change), once))
    })
}

/// Reads `WatchQueueStats`: the event and the time between two messages.
pub(crate) fn watch_queue_stats(
    request: &pb::WatchQueueStatsRequest,
) -> Result<(EventId, Duration), InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", EventId::parse(&request.event_id));
    let interval = violations.check("interval", optional_span(request.interval, STATS_SPAN));
    violations.build(|| Some((event_id?, interval?.unwrap_or(STATS_DEFAULT))))
}

/// Reads `BlockCustomer` of `caller`.
pub(crate) fn block_customer<'a>(
    caller: &'a str,
    request: &pb::BlockCustomerRequest,
) -> Result<(EventId, CustomerId, Request<'a, Blocked>), InvalidFields> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    check_text(&mut violations, "note", &request.note, NOTE_CHARS_MAX);
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = BLOCK_CUSTOMER.request(caller, request_id, &request.encode_to_vec());
        Some((event_id, customer_id?, once))
    })
}

/// Reads `UnblockCustomer` of `caller`.
pub(crate) fn unblock_customer<'a>(
    caller: &'a str,
    request: &pb::UnblockCustomerRequest,
) -> Result<(EventId, CustomerId, Request<'a, ()>), InvalidFields> {
    let mut violations = Violations::new();
    let ids = event_request(&mut violations, &request.event_id, &request.request_id);
    let customer_id = violations.check("customer_id", CustomerId::parse(&request.customer_id));
    violations.build(|| {
        let EventRequest { event_id, request_id } = ids?;
        let once = UNBLOCK_CUSTOMER.request(caller, request_id, &request.encode_to_vec());
        Some((event_id, customer_id?, once))
    })
}

fn close_reason(reason: pb::CloseReason) -> CloseReason {
    match reason {
        pb::CloseReason::Unspecified | pb::CloseReason::SoldOut => CloseReason::SoldOut,
        pb::CloseReason::Ended => CloseReason::Ended,
        pb::CloseReason::Canceled => CloseReason::Canceled,
        pb::CloseReason::Organizer => CloseReason::Organizer,
    }
}
