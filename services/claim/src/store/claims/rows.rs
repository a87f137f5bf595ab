//! Reads claims with their items and history from rows.

use std::{collections::HashMap, sync::Arc};

use onsale_storage::postgres::{Row, Transaction, row::RowExt as _};
use onsale_types::{Currency, Money};
use uuid::Uuid;

use super::stage;
use crate::{
    domain::{
        Buyer, Claim, ClaimExpiry, ClaimLifecycle, EventSummary, Item, Origin, Seat, Stage, State,
        Transition, Unit,
    },
    error::Error,
};

const ITEMS: &str =
    "SELECT claim_id, sector_id, sector_name, unit_price_minor, group_count, units, row_labels, seat_labels
    FROM claim_item WHERE claim_id = ANY ($1) ORDER BY claim_id, place";
// Transition 1 is not stored: every claim begins CLAIMED at its creation time.
const HISTORY: &str = "SELECT claim_id, state, release_reason, transitioned_at
    FROM claim_transition WHERE claim_id = ANY ($1) AND number > 1 ORDER BY claim_id, number";

/// Reads the claims of `rows`, in their order, and loads their items and history.
pub(super) async fn read_claims(transaction: &Transaction, rows: &[Row]) -> Result<Vec<Claim>, Error> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let ids = rows.iter().map(|row| row.read("claim_id")).collect::<Result<Vec<Uuid>, _>>()?;
    let mut items = group_by_claim(transaction.query(ITEMS, &[&ids]).await?)?;
    let mut history = group_by_claim(transaction.query(HISTORY, &[&ids]).await?)?;
    let mut claims = Vec::with_capacity(rows.len());
    for (row, id) in rows.iter().zip(ids) {
        let items = items.remove(&id).unwrap_or_default();
        let history = history.remove(&id).unwrap_or_default();
        claims.push(read_claim(row, &items, &history)?);
    }
    Ok(claims)
}

fn group_by_claim(rows: Vec<Row>) -> Result<HashMap<Uuid, Vec<Row>>, Error> {
    let mut groups: HashMap<Uuid, Vec<Row>> = HashMap::new();
    for row in rows {
        groups.entry(row.read("claim_id")?).or_default().push(row);
    }
    Ok(groups)
}

fn read_claim(row: &Row, items: &[Row], history: &[Row]) -> Result<Claim, Error> {
    let currency: Currency = row.read_named("currency_code")?;
    let expiry = ClaimExpiry {
        create_time: row.read_time("created_at")?,
        expire_time: row.read_time("expires_at")?,
        extend_time: row.read_optional_time("extended_at")?,
    };
    let first = Transition { stage: Stage::Claimed, time: expiry.create_time };
    let history = std::iter::once(Ok(first)).chain(history.iter().map(read_transition));
    Ok(Claim {
        id: row.read_id("claim_id")?,
        customer_id: row.read_id("customer_id")?,
        event: Arc::new(EventSummary {
            id: row.read_id("event_id")?,
            name: row.read("event_name")?,
            venue_name: row.read("venue_name")?,
            venue_address: row.read("venue_address")?,
            time_zone: row.read("time_zone")?,
            start_time: row.read_time("start_at")?,
        }),
        buyer: Buyer { email: row.read("buyer_email")?, locale: row.read("buyer_locale")? },
        items: items.iter().map(|row| read_item(row, currency)).collect::<Result<_, _>>()?,
        total: Money::new(row.read("total_minor")?, currency),
        origin: read_origin(row)?,
        hold_id: row.read_id("hold_id")?,
        lifecycle: read_lifecycle(row)?,
        expiry,
        history: history.collect::<Result<_, _>>()?,
    })
}

fn read_origin(row: &Row) -> Result<Origin, Error> {
    match (row.read_optional_count("fencing_number")?, row.read_optional_id("quota_id")?) {
        (Some(fencing_number), None) => Ok(Origin::Turn { fencing_number }),
        (None, Some(quota_id)) => Ok(Origin::Invitation { quota_id }),
        (Some(_), Some(_)) | (None, None) => Err(Error::Stored { what: "fencing_number" }),
    }
}

fn read_lifecycle(row: &Row) -> Result<ClaimLifecycle, Error> {
    let payment_id = row.read_optional_id("payment_id")?;
    let paid = || payment_id.ok_or(Error::Stored { what: "payment_id" });
    let state = match stage::read(row)? {
        Stage::Claimed => State::Claimed { payment_id },
        Stage::Confirmed => State::Confirmed { payment_id: paid()? },
        Stage::Released(reason) => State::Released { reason, payment_id },
        Stage::Rejected => State::Rejected { payment_id: paid()? },
    };
    Ok(ClaimLifecycle { state, hold: row.read_named("hold_state")? })
}

fn read_transition(row: &Row) -> Result<Transition, Error> {
    Ok(Transition { stage: stage::read(row)?, time: row.read_time("transitioned_at")? })
}

fn read_item(row: &Row, currency: Currency) -> Result<Item, Error> {
    let row_labels: Vec<String> = row.read("row_labels")?;
    let seat_labels: Vec<String> = row.read("seat_labels")?;
    let mut seats =
        row_labels.into_iter().zip(seat_labels).map(|(row_label, seat_label)| Seat { row_label, seat_label });
    let numbers: Vec<u32> = row.read_counts("units")?;
    Ok(Item {
        sector_id: row.read_id("sector_id")?,
        sector_name: row.read("sector_name")?,
        units: numbers.into_iter().map(|number| Unit { number, seat: seats.next() }).collect(),
        unit_price: Money::new(row.read("unit_price_minor")?, currency),
        group_count: row.read_count("group_count")?,
    })
}
