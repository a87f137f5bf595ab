//! Requests to create or change a draft. A changed draft is checked as a whole, like a new one.

use std::collections::BTreeSet;

use onsale_kit::error::{InvalidFields, Violations};
use onsale_proto::{inventory::v1 as pb, r#type::v1 as types};
use onsale_types::{Currency, EventId, Money, Named as _, RequestId, SectorId, Timestamp};

use super::line;
use crate::{
    convert::responses,
    domain::{
        commands::DraftChange,
        event::{Details, Draft, Event, Sector, SectorDraft, Venue},
        layout::{SeatLayout, SeatRow},
    },
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

#[derive(Clone, Debug)]
pub(crate) struct CreateEvent {
    pub(crate) request_id: RequestId,
    pub(crate) draft: Draft,
}

#[derive(Clone, Debug)]
pub(crate) struct UpdateEvent {
    pub(crate) request_id: RequestId,
    pub(crate) event_id: EventId,
    pub(crate) change: EventChange,
}

/// New values of some fields of a draft.
#[derive(Clone, Debug)]
pub(crate) struct EventChange {
    /// Holds the new values; the other fields are ignored.
    event: pb::Event,
    fields: BTreeSet<Field>,
}

/// The fields that an update may change. Their names are the paths of an update mask.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectorIds {
    /// All sectors are new.
    Ignored,
    /// A sector with an id replaces the one of that id.
    Kept,
}

pub(crate) fn create_event(request: &pb::CreateEventRequest) -> Result<CreateEvent, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event = violations.require("event", request.event.as_ref());
    let draft = event.and_then(|event| draft(&mut violations, event, SectorIds::Ignored));
    violations.build(|| Some(CreateEvent { request_id: request_id?, draft: draft? }))
}

/// Reads a change of a draft. Without a mask, every field that is neither empty nor 0 changes.
pub(crate) fn update_event(request: &pb::UpdateEventRequest) -> Result<UpdateEvent, InvalidFields> {
    let mut violations = Violations::new();
    let request_id = violations.check("request_id", request.request_id.parse());
    let event_id = violations.check("event_id", request.event_id.parse());
    let event = violations.require("event", request.event.clone());
    let mut fields = BTreeSet::new();
    for path in request.update_mask.iter().flat_map(|mask| &mask.paths) {
        match Field::from_name(path) {
            Some(field) => drop(fields.insert(field)),
            None => violations.push("update_mask", format!("names `{path}`, which cannot be changed")),
        }
    }
    violations.build(|| {
        let event = event?;
        if fields.is_empty() {
            fields = Field::ALL.iter().copied().filter(|field| field.is_given(&event)).collect();
        }
        Some(UpdateEvent {
            request_id: request_id?,
            event_id: event_id?,
            change: EventChange { event, fields },
        })
    })
}

impl DraftChange for EventChange {
    fn expected_revision(&self) -> Option<u64> {
        (self.event.revision > 0).then_some(self.event.revision)
    }

    fn apply(&self, before: &Event, sectors: &[Sector]) -> Result<Draft, InvalidFields> {
        let mut event = responses::event(before, sectors);
        for field in &self.fields {
            field.copy(&self.event, &mut event);
        }
        let mut violations = Violations::new();
        let draft = draft(&mut violations, &event, SectorIds::Kept);
        violations.build(|| draft)
    }
}

impl Field {
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
    let start = violations.require_time("event.start_time", event.start_time);
    let on_sale = violations.optional_time("event.on_sale_time", event.on_sale_time)?;
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
        violations.push("event.sectors", format!("must have 1 to {SECTORS_MAX} entries"));
        return None;
    }
    let layouts = || sectors.iter().filter_map(|sector| sector.layout.as_ref());
    let rows: usize = layouts().map(|layout| layout.rows.len()).sum();
    let labels: usize = layouts().flat_map(|layout| &layout.rows).map(|row| row.seat_labels.len()).sum();
    if rows > ROWS_MAX || labels > SEAT_LABELS_MAX {
        let message = format!("must have at most {ROWS_MAX} rows and {SEAT_LABELS_MAX} seat labels together");
        violations.push("event.sectors", message);
        return None;
    }
    let (mut names, mut kept) = (BTreeSet::new(), BTreeSet::new());
    let mut read = Vec::with_capacity(sectors.len());
    for (index, sector) in sectors.iter().enumerate() {
        let field = format!("event.sectors[{index}]");
        if !names.insert(&sector.name) {
            violations.push(format!("{field}.name"), "duplicates the name of another sector");
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
        violations.push("event.sectors", format!("must have at most {CAPACITY_MAX} units together"));
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
    let price = violations.require_money(format!("{field}.price"), sector.price.clone());
    let price =
        price.and_then(|price| violations.check(format!("{field}.price"), check_price(price, currency)));
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

fn check_price(price: Money, currency: Option<Currency>) -> Result<Money, &'static str> {
    if currency.is_some_and(|currency| currency != price.currency()) {
        return Err("must be in the event's currency");
    }
    // Keeps the amount of every order within `i64`.
    price.checked_mul(UNITS_PER_CUSTOMER_MAX.into()).map(|_| price).map_err(|_| "is too large")
}

fn read_layout(violations: &mut Violations, field: &str, layout: &types::SeatLayout) -> Option<SeatLayout> {
    if layout.rows.is_empty() || layout.rows.len() > ROWS_PER_SECTOR_MAX {
        violations.push(format!("{field}.rows"), format!("must have 1 to {ROWS_PER_SECTOR_MAX} entries"));
        return None;
    }
    let mut labels = BTreeSet::new();
    let mut rows = Vec::with_capacity(layout.rows.len());
    for (index, row) in layout.rows.iter().enumerate() {
        let field = format!("{field}.rows[{index}]");
        if !labels.insert(&row.label) {
            violations.push(format!("{field}.label"), "duplicates the label of another row");
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
        return Err("must be empty or have one entry per seat");
    }
    if labels.iter().collect::<BTreeSet<_>>().len() != labels.len() {
        return Err("must be distinct");
    }
    if labels.iter().any(|label| line(label, 1, LABEL_CHARS_MAX).is_err()) {
        return Err("must have 1 to 8 characters each");
    }
    Ok(labels.clone())
}

/// Reads a text of several lines.
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
