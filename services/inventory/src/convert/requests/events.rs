//! Requests about stored events.

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::inventory::v1 as pb;
use onsale_types::{EventId, Named as _, PageLimits, PageQuery, PageSize, PageToken, RequestId, Timestamp};

use crate::domain::{commands::ListEvents, event::EventState};

/// A request to activate or end an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventCommand {
    pub(crate) request_id: RequestId,
    pub(crate) event_id: EventId,
}

pub(crate) fn event_command(request_id: &str, event_id: &str) -> Result<EventCommand, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request_id.parse());
    let event_id = violations.check("event_id", event_id.parse());
    violations.build(|| Some(EventCommand { request_id: request_id?, event_id: event_id? }))
}

pub(crate) fn event_id(text: &str) -> Result<EventId, InvalidFields> {
    let mut violations = Violations::new();
    let event_id = violations.check("event_id", text.parse());
    violations.build(|| event_id)
}

/// Also returns the query that page tokens of the list are valid for.
pub(crate) fn list_events(request: &pb::ListEventsRequest) -> Result<(ListEvents, PageQuery), InvalidFields> {
    let mut violations = Violations::new();
    let rows = i32::try_from(request.page_size).unwrap_or(i32::MAX);
    let page_size = violations.check("page_size", PageSize::from_request(rows, PageLimits::default()));
    let organizer_id = violations.optional_id("organizer_id", &request.organizer_id).flatten();
    let states: Vec<EventState> = request
        .states
        .iter()
        .enumerate()
        .filter_map(|(index, state)| violations.check(format_args!("states[{index}]"), event_state(*state)))
        .collect();
    let start_from = violations.optional_time("start_from_time", request.start_from_time).flatten();
    let start_until = violations.optional_time("start_until_time", request.start_until_time).flatten();
    let names: Vec<&str> = states.iter().map(|state| state.name()).collect();
    let text = |time: Option<Timestamp>| time.map(|time| time.to_string()).unwrap_or_default();
    let query = PageQuery::new("events")
        .with("organizer_id", &request.organizer_id)
        .with("states", names.join(","))
        .with("start_from_time", text(start_from))
        .with("start_until_time", text(start_until));
    let token = violations.check("page_token", PageToken::parse(&request.page_token, &query)).flatten();
    let after = token.and_then(|token| violations.require("page_token", read_position(token.position())));
    let list = violations.build(|| {
        let page_size = page_size?;
        Some(ListEvents { organizer_id, states, start_from, start_until, page_size, after })
    })?;
    Ok((list, query))
}

fn event_state(state: i32) -> Result<EventState, &'static str> {
    match pb::EventState::try_from(state) {
        Ok(pb::EventState::Draft) => Ok(EventState::Draft),
        Ok(pb::EventState::OnSale) => Ok(EventState::OnSale),
        Ok(pb::EventState::Paused) => Ok(EventState::Paused),
        Ok(pb::EventState::SoldOut) => Ok(EventState::SoldOut),
        Ok(pb::EventState::Ended) => Ok(EventState::Ended),
        Ok(pb::EventState::Unspecified) | Err(_) => Err("is not a state of an event"),
    }
}

/// Reads the position of a page token: start time and id of the previous page's last event.
fn read_position(position: &[u8]) -> Option<(Timestamp, EventId)> {
    let (micros, id) = position.split_first_chunk::<8>()?;
    let id = uuid::Uuid::from_slice(id).ok()?;
    Some((Timestamp::from_micros(i64::from_be_bytes(*micros)), EventId::from_uuid(id)))
}
