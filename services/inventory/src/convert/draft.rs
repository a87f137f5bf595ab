//! What an organizer says about an event: checked as a whole, whether it is new or a change of what is there.

use std::collections::BTreeSet;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{Currency, EventId, Money, RequestId, SectorId, Timestamp};

use super::{event, invalid, time};
use crate::domain::{
    event::{Details, Draft, Event, Sector, SectorDraft, Venue},
    layout::{SeatLayout, SeatRow},
};

const NAME_CHARS_MAX: usize = 200;
const SECTOR_NAME_CHARS_MAX: usize = 100;
const DESCRIPTION_CHARS_MAX: usize = 10_000;
const ADDRESS_CHARS_MAX: usize = 300;
const TIME_ZONE_CHARS_MAX: usize = 64;
const LABEL_CHARS_MAX: usize = 8;
const UNITS_PER_CUSTOMER_MAX: u32 = 100;
const UNITS_PER_CUSTOMER_DEFAULT: u32 = 8;
const SECTORS_MAX: usize = 200;
pub(super) const CAPACITY_MAX: u32 = 1_000_000;
const ROWS_PER_SECTOR_MAX: usize = 1_000;
const SEATS_PER_ROW_MAX: u32 = 1_000;
const ROWS_MAX: usize = 20_000;
const SEAT_LABELS_MAX: usize = 100_000;

/// A request to create an event.
#[derive(Clone, Debug)]
pub struct CreateEvent {
    /// Names the request.
    pub request_id: RequestId,
    /// The event.
    pub draft: Draft,
}

/// A request to change a draft.
#[derive(Clone, Debug)]
pub struct UpdateEvent {
    /// Names the request.
    pub request_id: RequestId,
    /// The event.
    pub event_id: EventId,
    /// What to change.
    pub change: Change,
}

/// New values of some fields. Whether they fit shows only together with those that stay.
#[derive(Clone, Debug)]
pub struct Change {
    event: pb::Event,
    fields: BTreeSet<Field>,
}

/// The fields of an event that an update may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Field {
    Name,
    Description,
    Venue,
    StartTime,
    OnSaleTime,
    CurrencyCode,
    UnitsPerCustomerMax,
    Sectors,
}

/// Whether sectors keep the ids they come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectorIds {
    Ignored,
    Kept,
}

/// Reads a request to create an event.
pub fn create_event(request: &pb::CreateEventRequest) -> Result<CreateEvent, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event = violations.require("event", request.event.as_ref());
    let draft = event.and_then(|event| draft(&mut violations, event, SectorIds::Ignored));
    violations.build(|| Some(CreateEvent { request_id: request_id?, draft: draft? }))
}

/// Reads a request to change a draft.
pub fn update_event(request: &pb::UpdateEventRequest) -> Result<UpdateEvent, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let event = violations.require("event", request.event.clone());
    let mut fields = BTreeSet::new();
    for path in request.update_mask.iter().flat_map(|mask| &mask.paths) {
        match Field::ALL.into_iter().find(|field| field.name() == path) {
            Some(field) => drop(fields.insert(field)),
            None => violations.push("update_mask", format!("has `{path}`, which cannot be changed")),
        }
    }
    violations.build(|| {
        let event = event?;
        if fields.is_empty() {
            fields = Field::ALL.into_iter().filter(|field| field.is_given(&event)).collect();
        }
        Some(UpdateEvent { request_id: request_id?, event_id: event_id?, change: Change { event, fields } })
    })
}

impl Change {
    /// The revision that the caller insists on.
    #[must_use]
    pub fn revision(&self) -> Option<u64> {
        (self.event.revision > 0).then_some(self.event.revision)
    }

    /// The draft `before` with these changes.
    pub fn apply(&self, before: &Event, sectors: &[Sector]) -> Result<Draft, InvalidFields> {
        let mut event = event::event(before, sectors);
        for field in &self.fields {
            field.copy(&self.event, &mut event);
        }
        let mut violations = Violations::new();
        let draft = draft(&mut violations, &event, SectorIds::Kept);
        violations.build(|| draft)
    }
}

impl Field {
    const ALL: [Self; 8] = [
        Self::Name,
        Self::Description,
        Self::Venue,
        Self::StartTime,
        Self::OnSaleTime,
        Self::CurrencyCode,
        Self::UnitsPerCustomerMax,
        Self::Sectors,
    ];

    /// As a mask names it.
    const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Description => "description",
            Self::Venue => "venue",
            Self::StartTime => "start_time",
            Self::OnSaleTime => "on_sale_time",
            Self::CurrencyCode => "currency_code",
            Self::UnitsPerCustomerMax => "units_per_customer_max",
            Self::Sectors => "sectors",
        }
    }

    /// Whether it is neither empty nor 0.
    fn is_given(self, event: &pb::Event) -> bool {
        match self {
            Self::Name => !event.name.is_empty(),
            Self::Description => !event.description.is_empty(),
            Self::Venue => event.venue.is_some(),
            Self::StartTime => event.start_time.is_some(),
            Self::OnSaleTime => event.on_sale_time.is_some(),
            Self::CurrencyCode => !event.currency_code.is_empty(),
            Self::UnitsPerCustomerMax => event.units_per_customer_max > 0,
            Self::Sectors => !event.sectors.is_empty(),
        }
    }

    fn copy(self, from: &pb::Event, to: &mut pb::Event) {
        match self {
            Self::Name => to.name.clone_from(&from.name),
            Self::Description => to.description.clone_from(&from.description),
            Self::Venue => to.venue.clone_from(&from.venue),
            Self::StartTime => to.start_time = from.start_time,
            Self::OnSaleTime => to.on_sale_time = from.on_sale_time,
            Self::CurrencyCode => to.currency_code.clone_from(&from.currency_code),
            Self::UnitsPerCustomerMax => to.units_per_customer_max = from.units_per_customer_max,
            Self::Sectors => to.sectors.clone_from(&from.sectors),
        }
    }
}

fn draft(violations: &mut Violations, event: &pb::Event, ids: SectorIds) -> Option<Draft> {
    let name = violations.check("event.name", line(&event.name, 1, NAME_CHARS_MAX));
    let description = violations.check("event.description", text(&event.description));
    let venue = violations.require("event.venue", event.venue.as_ref());
    let venue = venue.and_then(|given| read_venue(violations, given));
    let times = read_times(violations, event);
    let currency = violations.check("event.currency_code", Currency::parse(&event.currency_code));
    let units_max = violations.check("event.units_per_customer_max", units_max(event.units_per_customer_max));
    let sectors = read_sectors(violations, &event.sectors, currency, ids);
    let (start_time, on_sale_time) = times?;
    let details = Details {
        name: name?,
        description: description?,
        venue: venue?,
        start_time,
        on_sale_time,
        currency: currency?,
        units_per_customer_max: units_max?,
    };
    Some(Draft { details, sectors: sectors? })
}

fn read_venue(violations: &mut Violations, venue: &pb::Venue) -> Option<Venue> {
    let name = violations.check("event.venue.name", line(&venue.name, 1, NAME_CHARS_MAX));
    let address = violations.check("event.venue.address", line(&venue.address, 0, ADDRESS_CHARS_MAX));
    let time_zone = violations.check("event.venue.time_zone", line(&venue.time_zone, 1, TIME_ZONE_CHARS_MAX));
    Some(Venue { name: name?, address: address?, time_zone: time_zone? })
}

fn read_times(violations: &mut Violations, event: &pb::Event) -> Option<(Timestamp, Option<Timestamp>)> {
    let start = violations.require("event.start_time", event.start_time);
    let start = start.and_then(|start| violations.check("event.start_time", time(start)));
    let on_sale = match event.on_sale_time {
        Some(on_sale) => Some(violations.check("event.on_sale_time", time(on_sale))?),
        None => None,
    };
    let start = start?;
    if on_sale.is_some_and(|on_sale| on_sale >= start) {
        violations.push("event.on_sale_time", "must be before start_time");
        return None;
    }
    Some((start, on_sale))
}

fn units_max(given: u32) -> Result<u32, String> {
    match given {
        0 => Ok(UNITS_PER_CUSTOMER_DEFAULT),
        1..=UNITS_PER_CUSTOMER_MAX => Ok(given),
        _ => Err(format!("must be 1 to {UNITS_PER_CUSTOMER_MAX}")),
    }
}

fn read_sectors(
    violations: &mut Violations,
    sectors: &[pb::Sector],
    currency: Option<Currency>,
    ids: SectorIds,
) -> Option<Vec<SectorDraft>> {
    if sectors.is_empty() || sectors.len() > SECTORS_MAX {
        violations.push("event.sectors", format!("must be 1 to {SECTORS_MAX}"));
        return None;
    }
    let layouts = || sectors.iter().filter_map(|sector| sector.layout.as_ref());
    let rows: usize = layouts().map(|layout| layout.rows.len()).sum();
    let labels: usize = layouts().flat_map(|layout| &layout.rows).map(|row| row.seat_labels.len()).sum();
    if rows > ROWS_MAX || labels > SEAT_LABELS_MAX {
        let message = format!("have more than {ROWS_MAX} rows or {SEAT_LABELS_MAX} seat labels together");
        violations.push("event.sectors", message);
        return None;
    }
    let (mut names, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let mut read = Vec::with_capacity(sectors.len());
    for (index, sector) in sectors.iter().enumerate() {
        let field = format!("event.sectors[{index}]");
        if !names.insert(&sector.name) {
            violations.push(format!("{field}.name"), "is another sector's name too");
        }
        let sector = read_sector(violations, &field, sector, currency, ids);
        if let Some(id) = sector.as_ref().and_then(|sector| sector.id)
            && !kept.insert(id)
        {
            violations.push(format!("{field}.sector_id"), "names a sector twice");
        }
        read.push(sector);
    }
    let read: Vec<SectorDraft> = read.into_iter().collect::<Option<_>>()?;
    let capacity = read.iter().map(|sector| sector.capacity).fold(0, u32::saturating_add);
    if capacity > CAPACITY_MAX {
        violations.push("event.sectors", format!("have more than {CAPACITY_MAX} units together"));
    }
    Some(read)
}

fn read_sector(
    violations: &mut Violations,
    field: &str,
    sector: &pb::Sector,
    currency: Option<Currency>,
    ids: SectorIds,
) -> Option<SectorDraft> {
    let id = match ids {
        SectorIds::Kept if !sector.sector_id.is_empty() => {
            Some(violations.check(format!("{field}.sector_id"), SectorId::parse(&sector.sector_id))?)
        }
        SectorIds::Kept | SectorIds::Ignored => None,
    };
    let name = violations.check(format!("{field}.name"), line(&sector.name, 1, SECTOR_NAME_CHARS_MAX));
    let price = violations.require(format!("{field}.price"), sector.price.as_ref());
    let price =
        price.and_then(|price| violations.check(format!("{field}.price"), read_price(price, currency)));
    let layout = match &sector.layout {
        Some(layout) => Some(read_layout(violations, &format!("{field}.layout"), layout)?),
        None => None,
    };
    let capacity = layout.as_ref().map_or(sector.capacity, SeatLayout::capacity);
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        violations.push(format!("{field}.capacity"), format!("must be 1 to {CAPACITY_MAX}"));
    }
    Some(SectorDraft { id, name: name?, price: price?, capacity, layout })
}

fn read_price(price: &types::Money, currency: Option<Currency>) -> Result<Money, &'static str> {
    let own = Currency::parse(&price.currency_code).map_err(|_| "has no currency code of three letters")?;
    if currency.is_some_and(|currency| currency != own) {
        return Err("must be in the event's currency");
    }
    if price.amount_minor < 0 {
        return Err("must not be negative");
    }
    let price = Money::new(price.amount_minor, own);
    // So that no order's amount can overflow.
    price.checked_mul(UNITS_PER_CUSTOMER_MAX.into()).map(|_| price).map_err(|_| "is too large")
}

fn read_layout(violations: &mut Violations, field: &str, layout: &types::SeatLayout) -> Option<SeatLayout> {
    if layout.rows.is_empty() || layout.rows.len() > ROWS_PER_SECTOR_MAX {
        violations.push(format!("{field}.rows"), format!("must be 1 to {ROWS_PER_SECTOR_MAX}"));
        return None;
    }
    let mut labels = BTreeSet::new();
    let mut rows = Vec::with_capacity(layout.rows.len());
    for (index, row) in layout.rows.iter().enumerate() {
        let field = format!("{field}.rows[{index}]");
        if !labels.insert(&row.label) {
            violations.push(format!("{field}.label"), "is another row's label too");
        }
        let label = violations.check(format!("{field}.label"), line(&row.label, 1, LABEL_CHARS_MAX));
        if !(1..=SEATS_PER_ROW_MAX).contains(&row.seat_count) {
            violations.push(format!("{field}.seat_count"), format!("must be 1 to {SEATS_PER_ROW_MAX}"));
        }
        let seat_labels = violations.check(format!("{field}.seat_labels"), seat_labels(row));
        rows.push(label.zip(seat_labels).map(|(label, seat_labels)| SeatRow {
            label,
            seat_count: row.seat_count,
            seat_labels,
        }));
    }
    Some(SeatLayout::new(rows.into_iter().collect::<Option<_>>()?))
}

fn seat_labels(row: &types::SeatRow) -> Result<Vec<String>, &'static str> {
    let labels = &row.seat_labels;
    if !labels.is_empty() && u32::try_from(labels.len()) != Ok(row.seat_count) {
        return Err("must be none, or as many as seats");
    }
    if labels.iter().collect::<BTreeSet<_>>().len() != labels.len() {
        return Err("are not distinct");
    }
    if labels.iter().any(|label| line(label, 1, LABEL_CHARS_MAX).is_err()) {
        return Err("must have 1 to 8 characters each");
    }
    Ok(labels.clone())
}

/// A text on one line.
pub(super) fn line(text: &str, chars_min: usize, chars_max: usize) -> Result<String, String> {
    let length = text.chars().count();
    if !(chars_min..=chars_max).contains(&length) || (chars_min > 0 && text.trim().is_empty()) {
        Err(format!("must have {chars_min} to {chars_max} characters"))
    } else if text.chars().any(char::is_control) {
        Err("must have no control characters".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// A text of several lines.
fn text(text: &str) -> Result<String, String> {
    let is_refused = |char: char| char.is_control() && !matches!(char, '\n' | '\r' | '\t');
    if text.chars().count() > DESCRIPTION_CHARS_MAX {
        Err(format!("must have at most {DESCRIPTION_CHARS_MAX} characters"))
    } else if text.chars().any(is_refused) {
        Err("must have no control characters".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// The time zone of the venue is not one the database knows.
#[must_use]
pub fn unknown_time_zone() -> InvalidFields {
    invalid("event.venue.time_zone", "is no known IANA time zone")
}
