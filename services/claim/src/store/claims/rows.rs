//! Rows into claims.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use onsale_storage::postgres::{Row, Transaction, column};
use onsale_types::{
    ClaimId, Currency, CustomerId, EventId, HoldId, Money, PaymentId, QuotaId, SectorId, Timestamp,
};
use uuid::Uuid;

use super::super::row;
use super::{HISTORY, ITEMS};
use crate::{
    domain::{
        Buyer, Claim, EventSummary, Item, Life, Lifetime, Origin, Seat, Stage, State, Transition, Unit,
    },
    error::Error,
};

/// The claims of `found`, in its order, with what belongs to them.
pub(super) async fn claims_of(tx: &Transaction, found: &[Row]) -> Result<Vec<Claim>, Error> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let ids = found.iter().map(|found| column::<Uuid>(found, "claim_id")).collect::<Result<Vec<_>, _>>()?;
    let mut items = grouped(tx.query(ITEMS, &[&ids]).await?)?;
    let mut history = grouped(tx.query(HISTORY, &[&ids]).await?)?;
    let mut claims = Vec::with_capacity(found.len());
    for (found, id) in found.iter().zip(ids) {
        let items = items.remove(&id).unwrap_or_default();
        let history = history.remove(&id).unwrap_or_default();
        claims.push(claim(found, &items, &history)?);
    }
    Ok(claims)
}

/// Rows by their claim, in the order they came.
fn grouped(rows: Vec<Row>) -> Result<HashMap<Uuid, Vec<Row>>, Error> {
    let mut groups: HashMap<Uuid, Vec<Row>> = HashMap::new();
    for row in rows {
        groups.entry(column(&row, "claim_id")?).or_default().push(row);
    }
    Ok(groups)
}

fn claim(found: &Row, items: &[Row], history: &[Row]) -> Result<Claim, Error> {
    let currency = Currency::parse(column(found, "currency_code")?)
        .map_err(|_malformed| Error::Stored { what: "currency_code" })?;
    let lifetime = lifetime(found)?;
    let begin = Transition { stage: Stage::Claimed, time: lifetime.create_time };
    let history = std::iter::once(Ok(begin)).chain(history.iter().map(transition));
    Ok(Claim {
        id: row::id(found, "claim_id", ClaimId::from_uuid)?,
        customer: row::id(found, "customer_id", CustomerId::from_uuid)?,
        event: Arc::new(EventSummary {
            id: row::id(found, "event_id", EventId::from_uuid)?,
            name: column(found, "event_name")?,
            venue_name: column(found, "venue_name")?,
            venue_address: column(found, "venue_address")?,
            time_zone: column(found, "time_zone")?,
            start_time: row::timestamp(found, "start_at")?,
        }),
        buyer: Buyer { email: column(found, "buyer_email")?, locale: column(found, "buyer_locale")? },
        items: items.iter().map(|found| item(found, currency)).collect::<Result<_, _>>()?,
        total: Money::new(column(found, "total_minor")?, currency),
        origin: origin(found)?,
        hold: row::id(found, "hold_id", HoldId::from_uuid)?,
        life: life(found)?,
        lifetime,
        history: history.collect::<Result<_, _>>()?,
    })
}

fn origin(found: &Row) -> Result<Origin, Error> {
    let fencing_number = column::<Option<i64>>(found, "fencing_number")?;
    let quota = column::<Option<Uuid>>(found, "quota_id")?.map(QuotaId::from_uuid);
    match (fencing_number.map(u64::try_from), quota) {
        (Some(Ok(fencing_number)), None) => Ok(Origin::Turn { fencing_number }),
        (None, Some(quota)) => Ok(Origin::Invitation { quota }),
        (Some(_), _) | (None, None) => Err(Error::Stored { what: "fencing_number" }),
    }
}

fn lifetime(found: &Row) -> Result<Lifetime, Error> {
    let extended = column::<Option<SystemTime>>(found, "extended_at")?;
    let extended =
        extended.map(|time| Timestamp::from_system_time(time).ok_or(Error::Stored { what: "extended_at" }));
    Ok(Lifetime {
        create_time: row::timestamp(found, "created_at")?,
        expire_time: row::timestamp(found, "expires_at")?,
        extend_time: extended.transpose()?,
    })
}

fn life(found: &Row) -> Result<Life, Error> {
    let payment = column::<Option<Uuid>>(found, "payment_id")?.map(PaymentId::from_uuid);
    let paid = || payment.ok_or(Error::Stored { what: "payment_id" });
    let state = match row::stage(found)? {
        Stage::Claimed => State::Claimed { payment },
        Stage::Confirmed => State::Confirmed { payment: paid()? },
        Stage::Released(reason) => State::Released { reason, payment },
        Stage::Rejected => State::Rejected { payment: paid()? },
    };
    Ok(Life { state, hold: row::hold_state(found)? })
}

fn transition(found: &Row) -> Result<Transition, Error> {
    Ok(Transition { stage: row::stage(found)?, time: row::timestamp(found, "transitioned_at")? })
}

fn item(found: &Row, currency: Currency) -> Result<Item, Error> {
    let numbers: Vec<i32> = column(found, "units")?;
    let row_labels: Vec<String> = column(found, "row_labels")?;
    let seat_labels: Vec<String> = column(found, "seat_labels")?;
    let mut seats =
        row_labels.into_iter().zip(seat_labels).map(|(row_label, seat_label)| Seat { row_label, seat_label });
    let units = numbers.into_iter().map(|number| {
        let number = u32::try_from(number).map_err(|_negative| Error::Stored { what: "units" })?;
        Ok(Unit { number, seat: seats.next() })
    });
    Ok(Item {
        sector: row::id(found, "sector_id", SectorId::from_uuid)?,
        sector_name: column(found, "sector_name")?,
        units: units.collect::<Result<_, Error>>()?,
        unit_price: Money::new(column(found, "unit_price_minor")?, currency),
        group_count: row::count(found, "group_count")?,
    })
}
