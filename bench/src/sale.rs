//! Events on sale, created through the public contract, and reservations in them as Claim makes them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use onsale::retry::retry_until;
use onsale_kit::{auth::ServiceTokens, deadline::Deadline};
use onsale_proto::{
    inventory::v1::{
        ActivateEventRequest, CreateEventRequest, Event, ReserveUnitsRequest, Sector, Venue,
        event_service_client::EventServiceClient,
        inventory_internal_service_client::InventoryInternalServiceClient,
    },
    r#type::v1::{Money, SeatLayout, SeatRow, UnitSelection},
};
use onsale_types::{Clock as _, SystemClock};
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};
use uuid::Uuid;

use crate::{
    pod::Pod,
    testbed::Testbed,
    watched_pod::{channel, signed},
};

/// Units per reservation.
pub(crate) const UNITS: u32 = 2;
/// Most units of an event, and most that one customer may buy.
const EVENT_UNITS: u32 = 1_000_000;
const CUSTOMER_UNITS: u32 = 100;
/// Calls in a standing event before the next event is used. They leave a fifth of its units free, because a search for the last
/// units takes longer.
const STANDING_CALLS: u64 = 400_000;
/// Size of a seated event. Its sectors are used one after the other, each up to four fifths.
const SEATED_SECTORS: u32 = 20;
const SEATED_CALLS: u64 = 20_000;
const ROWS: u32 = 500;
const SEATS_PER_ROW: u32 = 100;
/// Lifetime of a hold: longer than any measurement.
const RELEASE_AFTER: Duration = Duration::from_secs(4 * 60 * 60);
const STARTS_IN: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Reservations in flight while a sector is filled.
const FILL_CONCURRENCY: usize = 8;
const FILL_TIMEOUT: Duration = Duration::from_secs(120);

/// A sector on sale, and the number of calls that use it before the next sector.
#[derive(Clone, Debug)]
pub(crate) struct HotSector {
    pub(crate) event_id: Uuid,
    pub(crate) sector_id: String,
    pub(crate) calls: u64,
    /// Revision of the event as Inventory last returned it; 0: not yet.
    revision: Arc<AtomicU64>,
}

impl HotSector {
    pub(crate) fn new(event_id: Uuid, sector_id: String, calls: u64) -> Self {
        Self { event_id, sector_id, calls, revision: Arc::default() }
    }
}

/// Sectors that are sold one after the other: one is hot at a time.
#[derive(Clone, Debug)]
pub(crate) struct HotSectors(Vec<HotSector>);

impl HotSectors {
    /// Returns the sector of the call with this number, from 0.
    pub(crate) fn at(&self, number: u64) -> Result<&HotSector, Status> {
        // All sectors take the same number of calls.
        let index = number / self.0.first().map_or(1, |sector| sector.calls);
        usize::try_from(index)
            .ok()
            .and_then(|index| self.0.get(index))
            .ok_or_else(|| Status::resource_exhausted("everything prepared is sold: fewer --seconds"))
    }

    /// Returns the sectors in the order of their use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &HotSector> {
        self.0.iter()
    }

    /// Returns the events of the sectors, each once.
    pub(crate) fn events(&self) -> Vec<Uuid> {
        let mut events: Vec<Uuid> = self.0.iter().map(|sector| sector.event_id).collect();
        events.dedup();
        events
    }
}

/// Client that creates events and puts them on sale.
pub(crate) struct Organizer {
    client: EventServiceClient<Channel>,
    authorization: String,
}

impl Organizer {
    pub(crate) async fn at(testbed: &Testbed, inventory: &Pod) -> anyhow::Result<Self> {
        let client = EventServiceClient::new(channel(inventory).await?);
        Ok(Self { client, authorization: testbed.organizer() })
    }

    /// Puts enough standing units on sale for `calls` calls.
    pub(crate) async fn standing(&mut self, calls: u64) -> anyhow::Result<HotSectors> {
        let mut sectors = Vec::new();
        for _ in 0..calls.div_ceil(STANDING_CALLS).max(1) {
            sectors.extend(self.on_sale(vec![standing_sector(EVENT_UNITS)], STANDING_CALLS).await?);
        }
        Ok(HotSectors(sectors))
    }

    /// Puts enough seats on sale for `calls` calls.
    pub(crate) async fn seated(&mut self, calls: u64) -> anyhow::Result<HotSectors> {
        let mut sectors = Vec::new();
        let per_event = SEATED_CALLS.saturating_mul(SEATED_SECTORS.into());
        for _ in 0..calls.div_ceil(per_event).max(1) {
            let drafts = (1..=SEATED_SECTORS).map(|number| seated_sector(&format!("Stand {number}"), ROWS));
            sectors.extend(self.on_sale(drafts.collect(), SEATED_CALLS).await?);
        }
        Ok(HotSectors(sectors))
    }

    /// Puts an event with `units` standing units on sale, for any number of calls.
    pub(crate) async fn scarce(&mut self, units: u32) -> anyhow::Result<HotSector> {
        let sectors = self.on_sale(vec![standing_sector(units)], u64::MAX).await?;
        sectors.into_iter().next().context("CreateEvent returned no sector")
    }

    /// Creates an event without putting it on sale.
    pub(crate) async fn draft(&mut self, sectors: Vec<Sector>) -> anyhow::Result<Event> {
        let request =
            CreateEventRequest { request_id: Uuid::now_v7().to_string(), event: Some(event(sectors)?) };
        let created = self.client.create_event(signed(request, &self.authorization)?).await;
        created
            .context("failed to create an event")?
            .into_inner()
            .event
            .context("CreateEvent returned no event")
    }

    async fn on_sale(&mut self, sectors: Vec<Sector>, calls: u64) -> anyhow::Result<Vec<HotSector>> {
        let event = self.draft(sectors).await?;
        let (request_id, event_id) = (Uuid::now_v7().to_string(), event.event_id.clone());
        let request = signed(ActivateEventRequest { request_id, event_id }, &self.authorization)?;
        self.client.activate_event(request).await.context("failed to activate an event")?;
        let event_id = event.event_id.parse().context("CreateEvent returned an invalid event id")?;
        let sectors = event.sectors.into_iter();
        Ok(sectors.map(|sector| HotSector::new(event_id, sector.sector_id, calls)).collect())
    }
}

/// Reserves as Claim does: with one service token, renewed before it expires, and with the event revision that it already knows.
#[derive(Clone)]
pub(crate) struct ReserveClient {
    client: InventoryInternalServiceClient<Channel>,
    tokens: Arc<ServiceTokens>,
}

impl ReserveClient {
    pub(crate) fn new(channel: Channel, tokens: &Arc<ServiceTokens>) -> Self {
        Self { client: InventoryInternalServiceClient::new(channel), tokens: Arc::clone(tokens) }
    }

    /// Reserves `count` units for a new customer.
    pub(crate) async fn reserve(self, sector: &HotSector, count: u32) -> Result<(), Status> {
        self.hold(sector, count, Uuid::now_v7()).await
    }

    async fn hold(mut self, sector: &HotSector, count: u32, hold_id: Uuid) -> Result<(), Status> {
        let selection =
            UnitSelection { sector_id: sector.sector_id.clone(), count, ..UnitSelection::default() };
        let mut request = Request::new(ReserveUnitsRequest {
            request_id: hold_id.to_string(),
            hold_id: hold_id.to_string(),
            event_id: sector.event_id.to_string(),
            customer_id: hold_id.to_string(),
            selections: vec![selection],
            release_after: prost_types::Duration::try_from(RELEASE_AFTER).ok(),
            known_event_revision: sector.revision.load(Ordering::Relaxed),
            ..ReserveUnitsRequest::default()
        });
        request.metadata_mut().insert("authorization", service_header(&self.tokens)?);
        let reserved = self.client.reserve_units(request).await?.into_inner();
        if reserved.event.is_some() {
            sector.revision.store(reserved.event_revision, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reserves `units` units of a sector in holds of [`CUSTOMER_UNITS`], and retries calls that Inventory refuses as overload.
    pub(crate) async fn fill(&self, sector: &HotSector, units: u32) -> anyhow::Result<()> {
        if !units.is_multiple_of(CUSTOMER_UNITS) {
            bail!("{units} units are no multiple of {CUSTOMER_UNITS}");
        }
        let deadline = Deadline::after(FILL_TIMEOUT);
        stream::iter(0..units / CUSTOMER_UNITS)
            .map(|_| {
                let hold_id = Uuid::now_v7();
                retry_until(deadline, move || self.clone().hold(sector, CUSTOMER_UNITS, hold_id))
            })
            .buffer_unordered(FILL_CONCURRENCY)
            .try_collect::<Vec<()>>()
            .await
            .context("failed to fill a sector")?;
        Ok(())
    }
}

/// Returns the `authorization` header of a service.
pub(crate) fn service_header(tokens: &ServiceTokens) -> Result<MetadataValue<Ascii>, Status> {
    let header = tokens.bearer();
    MetadataValue::try_from(header.as_bytes()).map_err(|_| Status::internal("a token is not a valid header"))
}

/// Returns a sector without seats.
pub(crate) fn standing_sector(capacity: u32) -> Sector {
    Sector { name: "Standing".to_owned(), price: price(), capacity, ..Sector::default() }
}

/// Returns a sector with rows of 100 seats.
pub(crate) fn seated_sector(name: &str, rows: u32) -> Sector {
    let row = |number: u32| SeatRow {
        label: number.to_string(),
        seat_count: SEATS_PER_ROW,
        seat_labels: Vec::new(),
    };
    let layout = SeatLayout { rows: (1..=rows).map(row).collect() };
    Sector { name: name.to_owned(), price: price(), layout: Some(layout), ..Sector::default() }
}

fn price() -> Option<Money> {
    Some(Money { amount_minor: 4_900, currency_code: "EUR".to_owned() })
}

fn event(sectors: Vec<Sector>) -> anyhow::Result<Event> {
    let start =
        SystemClock.now().checked_add(STARTS_IN).context("the system clock is too far in the future")?;
    let (seconds, nanos) = start.to_seconds_and_nanos();
    Ok(Event {
        name: "The Last Encore".to_owned(),
        venue: Some(Venue {
            name: "Arena Zagreb".to_owned(),
            address: "Ulica Vice Vukova 8, Zagreb".to_owned(),
            time_zone: "Europe/Zagreb".to_owned(),
        }),
        start_time: Some(prost_types::Timestamp { seconds, nanos }),
        currency_code: "EUR".to_owned(),
        units_per_customer_max: CUSTOMER_UNITS,
        sectors,
        ..Event::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_used_in_turn_and_end_after_the_last() {
        let sector = |sector: &str| HotSector::new(Uuid::nil(), sector.to_owned(), 10);
        let sectors = HotSectors(vec![sector("first"), sector("second")]);
        assert_eq!(sectors.at(9).unwrap().sector_id, "first");
        assert_eq!(sectors.at(10).unwrap().sector_id, "second");
        assert!(sectors.at(20).is_err());
        assert_eq!(sectors.events(), [Uuid::nil()]);
    }

    #[test]
    fn calls_leave_a_fifth_of_the_units_free() {
        let left = |units: u64, calls: u64| units - calls * u64::from(UNITS);
        assert_eq!(left(EVENT_UNITS.into(), STANDING_CALLS), 200_000);
        assert_eq!(left((ROWS * SEATS_PER_ROW).into(), SEATED_CALLS), 10_000);
        assert_eq!(left(EVENT_UNITS.into(), 0), u64::from(SEATED_SECTORS * ROWS * SEATS_PER_ROW));
    }
}
