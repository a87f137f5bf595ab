//! The demo event, created once per folder through the front door. Its request ids are stored before the first attempt, so
//! that a start after a crash repeats the same request instead of creating a second event.

use std::time::Duration;

use anyhow::Context;
use onsale::{
    front_door::FrontDoor,
    mesh::folder::{Folder, write_private},
    retry::retry_until,
};
use onsale_kit::deadline::Deadline;
use onsale_proto::{
    inventory::v1::{ActivateEventRequest, CreateEventRequest, Event, Sector, Venue},
    r#type::v1::{Money, SeatLayout, SeatRow},
};
use onsale_types::{Clock, RequestId, SystemClock};
use serde::{Deserialize, Serialize};
use tonic::Status;

const ORGANIZER: &str = "organizer@example.test";
/// Longest time for sign-in, creation and activation together.
const TIME_MAX: Duration = Duration::from_secs(30);
/// Time until the event starts: a year, so that an old folder still has an event on sale.
const STARTS_IN: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Capacity of the standing sector, enough for `onsale buy --customers 10000`.
const STANDING: u32 = 20_000;
const ROWS: u8 = 26;
const SEATS_PER_ROW: u32 = 40;

/// Content of `demo.json`: the requests, and the progress so far.
#[derive(Debug, Serialize, Deserialize)]
struct DemoState {
    create_request: String,
    activate_request: String,
    /// Start of the event in Unix seconds. Part of the request, so it must be the same in every attempt.
    start_seconds: i64,
    event_id: Option<String>,
    activated: bool,
}

/// Returns the UUID of the folder's demo event. Creates and activates the event if that has not happened yet.
pub(crate) async fn ensure(folder: &Folder, front_door: &str) -> anyhow::Result<String> {
    let mut demo = load(folder)?;
    if let Some(event_id) = demo.event_id.clone().filter(|_| demo.activated) {
        return Ok(event_id);
    }
    let deadline = Deadline::after(TIME_MAX);
    let door = FrontDoor::at(front_door)?;
    let organizer = door.sign_in(ORGANIZER, "organizer").await?;
    let event_id = match demo.event_id.clone() {
        Some(event_id) => event_id,
        None => {
            let request =
                CreateEventRequest { request_id: demo.create_request.clone(), event: Some(event(&demo)) };
            let created = retry_until(deadline, || {
                let (mut events, request) = (organizer.events(), request.clone());
                async move { events.create_event(request).await }
            });
            let created = created.await.map_err(|status| call_failed("CreateEvent", &status))?.into_inner();
            let event_id = created.event.unwrap_or_default().event_id;
            demo.event_id = Some(event_id.clone());
            save(folder, &demo)?;
            event_id
        }
    };
    let request =
        ActivateEventRequest { request_id: demo.activate_request.clone(), event_id: event_id.clone() };
    let activated = retry_until(deadline, || {
        let (mut events, request) = (organizer.events(), request.clone());
        async move { events.activate_event(request).await }
    });
    activated.await.map_err(|status| call_failed("ActivateEvent", &status))?;
    demo.activated = true;
    save(folder, &demo)?;
    Ok(event_id)
}

/// Returns the error of a call without the status details, which only programs read.
fn call_failed(call: &str, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{call} failed with {:?}: {}", status.code(), status.message())
}

fn load(folder: &Folder) -> anyhow::Result<DemoState> {
    if let Ok(text) = std::fs::read_to_string(folder.demo()) {
        return serde_json::from_str(&text).context("demo.json is damaged: start over with --fresh");
    }
    let starts =
        SystemClock.now().checked_add(STARTS_IN).context("the system clock is too far in the future")?;
    let demo = DemoState {
        create_request: RequestId::generate().to_string(),
        activate_request: RequestId::generate().to_string(),
        start_seconds: starts.to_seconds_and_nanos().0,
        event_id: None,
        activated: false,
    };
    save(folder, &demo)?;
    Ok(demo)
}

fn save(folder: &Folder, demo: &DemoState) -> anyhow::Result<()> {
    write_private(&folder.demo(), &serde_json::to_string_pretty(demo)?)
}

fn event(demo: &DemoState) -> Event {
    let price = |amount_minor| Some(Money { amount_minor, currency_code: "EUR".to_owned() });
    let row = |letter: u8| SeatRow {
        label: char::from(b'A' + letter).to_string(),
        seat_count: SEATS_PER_ROW,
        seat_labels: Vec::new(),
    };
    Event {
        name: "The Last Encore".to_owned(),
        description: "One night only. Made by `onsale up` to try things out.".to_owned(),
        venue: Some(Venue {
            name: "Arena Zagreb".to_owned(),
            address: "Ulica Vice Vukova 8, Zagreb".to_owned(),
            time_zone: "Europe/Zagreb".to_owned(),
        }),
        start_time: Some(prost_types::Timestamp { seconds: demo.start_seconds, nanos: 0 }),
        currency_code: "EUR".to_owned(),
        sectors: vec![
            Sector {
                name: "Standing".to_owned(),
                price: price(4_900),
                capacity: STANDING,
                ..Sector::default()
            },
            Sector {
                name: "Stand".to_owned(),
                price: price(8_900),
                layout: Some(SeatLayout { rows: (0..ROWS).map(row).collect() }),
                ..Sector::default()
            },
        ],
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        folder.create().unwrap();
        let first = load(&folder).unwrap();
        let second = load(&folder).unwrap();
        assert_eq!(first.create_request, second.create_request);
        assert_eq!(first.activate_request, second.activate_request);
        assert_eq!(event(&first), event(&second));
    }
}
