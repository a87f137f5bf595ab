//! The demo event: made once, through the front door, as any organizer would. Its request ids are kept before the first
//! try, so that whoever dies in between makes the same event again, not a second one.

use std::time::Duration;

use anyhow::Context;
use onsale_kit::deadline::Deadline;
use onsale_proto::{
    inventory::v1::{ActivateEventRequest, CreateEventRequest, Event, Sector, Venue},
    r#type::v1::{Money, SeatLayout, SeatRow},
};
use onsale_types::{Clock, RequestId, SystemClock};
use serde::{Deserialize, Serialize};
use tonic::Status;

use onsale::mesh::folder::{Folder, write_private};
use onsale::{front_door::FrontDoor, patience::patiently};

const ORGANIZER: &str = "organizer@example.test";
/// For all of it.
const TIME_MAX: Duration = Duration::from_secs(30);
/// The event is this far away, so that a folder kept for months still has something to sell.
const STARTS_IN: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Enough for a crowd that tries it out.
const STANDING: u32 = 20_000;
const ROWS: u8 = 26;
const SEATS_PER_ROW: u32 = 40;

/// How far it is.
#[derive(Debug, Serialize, Deserialize)]
struct Demo {
    create_request: String,
    activate_request: String,
    /// Part of the request, so it has to be the same in every try.
    start_seconds: i64,
    event_id: Option<String>,
    activated: bool,
}

/// The demo event of the folder: its UUID.
pub(crate) async fn keep(folder: &Folder, front_door: &str) -> anyhow::Result<String> {
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
            let created = patiently(deadline, || {
                let (mut events, request) = (organizer.events(), request.clone());
                async move { events.create_event(request).await }
            });
            let created = created.await.map_err(|status| refused("CreateEvent", &status))?.into_inner();
            let event_id = created.event.unwrap_or_default().event_id;
            demo.event_id = Some(event_id.clone());
            save(folder, &demo)?;
            event_id
        }
    };
    let request =
        ActivateEventRequest { request_id: demo.activate_request.clone(), event_id: event_id.clone() };
    let activated = patiently(deadline, || {
        let (mut events, request) = (organizer.events(), request.clone());
        async move { events.activate_event(request).await }
    });
    activated.await.map_err(|status| refused("ActivateEvent", &status))?;
    demo.activated = true;
    save(folder, &demo)?;
    Ok(event_id)
}

/// For people: without the details that programs read.
fn refused(call: &str, status: &Status) -> anyhow::Error {
    anyhow::anyhow!("{call} answered {:?}: {}", status.code(), status.message())
}

fn load(folder: &Folder) -> anyhow::Result<Demo> {
    if let Ok(text) = std::fs::read_to_string(folder.demo()) {
        return serde_json::from_str(&text).context("the note about the demo event is damaged");
    }
    let starts = SystemClock.now().checked_add(STARTS_IN).context("the demo event is too far away")?;
    let demo = Demo {
        create_request: RequestId::generate().to_string(),
        activate_request: RequestId::generate().to_string(),
        start_seconds: starts.to_seconds_and_nanos().0,
        event_id: None,
        activated: false,
    };
    save(folder, &demo)?;
    Ok(demo)
}

fn save(folder: &Folder, demo: &Demo) -> anyhow::Result<()> {
    write_private(&folder.demo(), &serde_json::to_string_pretty(demo)?)
}

fn event(demo: &Demo) -> Event {
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
    fn the_request_is_the_same_after_a_crash() {
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
