//! Inserts new claims and their items with COPY: Postgres needs no plan for the nineteen columns and writes all rows of a page in
//! one step (ADR 0018).

use onsale_storage::postgres::{
    CopyRows, Transaction, Type,
    row::{SqlCount, SqlTime},
};
use onsale_types::{ClaimId, Named as _};

use crate::{
    domain::{Claim, ClaimState, Item, Origin},
    error::Error,
};

const COPY: &str = "COPY claim (claim_id, event_id, customer_id, hold_id, fencing_number, quota_id, state, unit_count,
        total_minor, currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at,
        created_at, expires_at)
    FROM STDIN (FORMAT binary)";
const COPY_TYPES: [Type; 19] = [
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::UUID,
    Type::INT8,
    Type::UUID,
    Type::TEXT,
    Type::INT4,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
    Type::TIMESTAMPTZ,
];
const COPY_ITEMS: &str =
    "COPY claim_item (claim_id, place, sector_id, sector_name, unit_price_minor, group_count, units,
        row_labels, seat_labels)
    FROM STDIN (FORMAT binary)";
const COPY_ITEMS_TYPES: [Type; 9] = [
    Type::UUID,
    Type::INT4,
    Type::UUID,
    Type::TEXT,
    Type::INT8,
    Type::INT4,
    Type::INT4_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
];

/// Inserts claims whose hold attempts are taken and whose allowances are locked.
pub(crate) async fn insert(transaction: &Transaction, claims: &[Claim]) -> Result<(), Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let mut rows = CopyRows::of(&COPY_TYPES, claims.len());
    for claim in claims {
        push_claim(&mut rows, claim)?;
    }
    transaction.copy_in(COPY, rows).await?;
    copy_items(transaction, claims.iter().map(|claim| (claim.id, claim.items.as_slice()))).await
}

/// Inserts the items of a claim that has none.
pub(super) async fn insert_items(
    transaction: &Transaction,
    claim_id: ClaimId,
    items: &[Item],
) -> Result<(), Error> {
    copy_items(transaction, std::iter::once((claim_id, items))).await
}

async fn copy_items(
    transaction: &Transaction,
    claims: impl ExactSizeIterator<Item = (ClaimId, &[Item])>,
) -> Result<(), Error> {
    let number = |(claim_id, items)| (1_i32..).zip(items).map(move |(place, item)| (claim_id, place, item));
    let mut rows = CopyRows::of(&COPY_ITEMS_TYPES, claims.len());
    for (claim_id, place, item) in claims.flat_map(number) {
        push_item(&mut rows, claim_id, place, item)?;
    }
    transaction.copy_in(COPY_ITEMS, rows).await?;
    Ok(())
}

fn push_claim(rows: &mut CopyRows<'_>, claim: &Claim) -> Result<(), Error> {
    let Claim { event, buyer, total, .. } = claim;
    let (fencing_number, quota_id) = match claim.origin {
        Origin::Turn { fencing_number } => (Some(SqlCount(fencing_number)), None),
        Origin::Invitation { quota_id } => (None, Some(quota_id.as_uuid())),
    };
    rows.push(&[
        &claim.id.as_uuid(),
        &event.id.as_uuid(),
        &claim.customer_id.as_uuid(),
        &claim.hold_id.as_uuid(),
        &fencing_number,
        &quota_id,
        &ClaimState::Claimed.name(),
        &SqlCount(claim.unit_count()),
        &total.amount_minor(),
        &total.currency().code(),
        &buyer.email,
        &buyer.locale,
        &event.name,
        &event.venue_name,
        &event.venue_address,
        &event.time_zone,
        &SqlTime(event.start_time),
        &SqlTime(claim.expiry.create_time),
        &SqlTime(claim.expiry.expire_time),
    ])?;
    Ok(())
}

fn push_item(rows: &mut CopyRows<'_>, claim_id: ClaimId, place: i32, item: &Item) -> Result<(), Error> {
    let units: Vec<SqlCount<u32>> = item.units.iter().map(|unit| SqlCount(unit.number)).collect();
    let seats = item.units.iter().filter_map(|unit| unit.seat.as_ref());
    let (row_labels, seat_labels): (Vec<&str>, Vec<&str>) =
        seats.map(|seat| (seat.row_label.as_str(), seat.seat_label.as_str())).unzip();
    rows.push(&[
        &claim_id.as_uuid(),
        &place,
        &item.sector_id.as_uuid(),
        &item.sector_name,
        &item.unit_price.amount_minor(),
        &SqlCount(item.group_count),
        &units,
        &row_labels,
        &seat_labels,
    ])?;
    Ok(())
}
