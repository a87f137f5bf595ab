//! Claims into rows. Several at a time: a statement costs the same for one claim as for a hundred.

use std::time::SystemTime;

use onsale_storage::postgres::Transaction;
use onsale_types::{ClaimId, Currency, Timestamp};
use uuid::Uuid;

use super::super::{allowance, hold, row};
use crate::{
    domain::{Claim, CooldownRule, Item, Life, Lifetime, Origin, Transition},
    error::Error,
};

const INSERT: &str =
    "INSERT INTO claim (claim_id, event_id, customer_id, hold_id, fencing_number, quota_id, state,
        unit_count, total_minor, currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address,
        time_zone, start_at, created_at, expires_at)
    SELECT claim_id, event_id, customer_id, hold_id, fencing_number, quota_id, 'CLAIMED', unit_count, total_minor,
        currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at, created_at,
        expires_at
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bigint[], $6::uuid[], $7::int[], $8::bigint[],
            $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::timestamptz[],
            $17::timestamptz[], $18::timestamptz[])
        AS new (claim_id, event_id, customer_id, hold_id, fencing_number, quota_id, unit_count, total_minor,
            currency_code, buyer_email, buyer_locale, event_name, venue_name, venue_address, time_zone, start_at,
            created_at, expires_at)";
// Units and labels of all items come in one row each; an item's are from its first to its last.
const INSERT_ITEMS: &str = "INSERT INTO claim_item (claim_id, place, sector_id, sector_name, unit_price_minor,
        group_count, units, row_labels, seat_labels)
    SELECT claim_id, place, sector_id, sector_name, unit_price_minor, group_count,
        ($7::int[])[first_unit:last_unit], ($8::text[])[first_seat:last_seat], ($9::text[])[first_seat:last_seat]
    FROM unnest($1::uuid[], $2::int[], $3::uuid[], $4::text[], $5::bigint[], $6::int[], $10::int[], $11::int[],
            $12::int[], $13::int[])
        AS new (claim_id, place, sector_id, sector_name, unit_price_minor, group_count, first_unit, last_unit,
            first_seat, last_seat)";
const INSERT_TRANSITIONS: &str =
    "INSERT INTO claim_transition (claim_id, number, state, release_reason, transitioned_at)
    SELECT claim_id, number, state, release_reason, $5
    FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS new (claim_id, number, state, release_reason)";
const UPDATE: &str = "UPDATE claim SET state = $2, release_reason = $3, payment_id = $4 WHERE claim_id = $1";
const UPDATE_HOLDS: &str = "UPDATE hold SET state = new.state, release_due_at = now()
    FROM unnest($1::uuid[], $2::text[]) AS new (hold_id, state)
    WHERE hold.hold_id = ANY ($1) AND hold.hold_id = new.hold_id";
const UPDATE_LIFETIME: &str = "UPDATE claim SET expires_at = $2, extended_at = $3 WHERE claim_id = $1";

/// Items of any number of claims, column by column.
#[derive(Default)]
struct Items<'a> {
    claims: Vec<Uuid>,
    places: Vec<i32>,
    sectors: Vec<Uuid>,
    sector_names: Vec<&'a str>,
    prices: Vec<i64>,
    group_counts: Vec<i32>,
    units: Vec<i32>,
    row_labels: Vec<&'a str>,
    seat_labels: Vec<&'a str>,
    /// First and last unit of each item, then first and last seat.
    bounds: [Vec<i32>; 4],
}

impl<'a> Items<'a> {
    fn push(&mut self, claim: ClaimId, items: &'a [Item]) -> Result<(), Error> {
        for (place, item) in (1_i32..).zip(items) {
            self.claims.push(claim.as_uuid());
            self.places.push(place);
            self.sectors.push(item.sector.as_uuid());
            self.sector_names.push(&item.sector_name);
            self.prices.push(item.unit_price.amount_minor());
            self.group_counts.push(row::integer(item.group_count)?);
            let (first_unit, first_seat) = (position(&self.units), position(&self.seat_labels));
            for unit in &item.units {
                self.units.push(row::integer(unit.number)?);
                if let Some(seat) = &unit.seat {
                    self.row_labels.push(&seat.row_label);
                    self.seat_labels.push(&seat.seat_label);
                }
            }
            let (next_unit, next_seat) = (position(&self.units), position(&self.seat_labels));
            let bounds = [first_unit, next_unit.saturating_sub(1), first_seat, next_seat.saturating_sub(1)];
            for (column, bound) in self.bounds.iter_mut().zip(bounds) {
                column.push(bound);
            }
        }
        Ok(())
    }

    async fn insert(&self, tx: &Transaction) -> Result<(), Error> {
        let [first_units, last_units, first_seats, last_seats] = &self.bounds;
        tx.execute(
            INSERT_ITEMS,
            &[
                &self.claims,
                &self.places,
                &self.sectors,
                &self.sector_names,
                &self.prices,
                &self.group_counts,
                &self.units,
                &self.row_labels,
                &self.seat_labels,
                first_units,
                last_units,
                first_seats,
                last_seats,
            ],
        )
        .await?;
        Ok(())
    }
}

/// Adds new claims, whose holds and allowances are taken already.
pub async fn insert(tx: &Transaction, claims: &[Claim]) -> Result<(), Error> {
    if claims.is_empty() {
        return Ok(());
    }
    let mut items = Items::default();
    for claim in claims {
        items.push(claim.id, &claim.items)?;
    }
    // Sent one behind the other, without waiting in between.
    futures_util::future::try_join(insert_claims(tx, claims), items.insert(tx)).await?;
    Ok(())
}

async fn insert_claims(tx: &Transaction, claims: &[Claim]) -> Result<(), Error> {
    let ids = |id: fn(&Claim) -> Uuid| claims.iter().map(id).collect::<Vec<Uuid>>();
    let texts = |text: fn(&Claim) -> &str| claims.iter().map(text).collect::<Vec<&str>>();
    let times = |time: fn(&Claim) -> Timestamp| {
        claims.iter().map(|claim| row::system_time(time(claim))).collect::<Result<Vec<SystemTime>, Error>>()
    };
    let numbers = claims.iter().map(fencing_number).collect::<Result<Vec<Option<i64>>, Error>>()?;
    let counts =
        claims.iter().map(|it| row::integer(it.unit_count())).collect::<Result<Vec<i32>, Error>>()?;
    let quotas: Vec<Option<Uuid>> = claims.iter().map(quota).collect();
    let totals: Vec<i64> = claims.iter().map(|claim| claim.total.amount_minor()).collect();
    let currencies: Vec<_> = claims.iter().map(|claim| claim.total.currency()).collect();
    let currencies: Vec<&str> = currencies.iter().map(Currency::code).collect();
    tx.execute(
        INSERT,
        &[
            &ids(|claim| claim.id.as_uuid()),
            &ids(|claim| claim.event.id.as_uuid()),
            &ids(|claim| claim.customer.as_uuid()),
            &ids(|claim| claim.hold.as_uuid()),
            &numbers,
            &quotas,
            &counts,
            &totals,
            &currencies,
            &texts(|claim| &claim.buyer.email),
            &texts(|claim| &claim.buyer.locale),
            &texts(|claim| &claim.event.name),
            &texts(|claim| &claim.event.venue_name),
            &texts(|claim| &claim.event.venue_address),
            &texts(|claim| &claim.event.time_zone),
            &times(|claim| claim.event.start_time)?,
            &times(|claim| claim.lifetime.create_time)?,
            &times(|claim| claim.lifetime.expire_time)?,
        ],
    )
    .await?;
    Ok(())
}

/// Adds the items of one claim that has none.
pub(super) async fn insert_items(tx: &Transaction, claim: ClaimId, items: &[Item]) -> Result<(), Error> {
    let mut rows = Items::default();
    rows.push(claim, items)?;
    rows.insert(tx).await
}

/// Brings locked claims to another life, with all that hangs on them: holds, allowances, history. Answers them as they are
/// then, in their order.
pub async fn save(
    tx: &Transaction,
    changes: &[(Claim, Life)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<Vec<Claim>, Error> {
    update(tx, changes).await?;
    update_holds(tx, changes).await?;
    update_allowances(tx, changes, now, rule).await?;
    let mut saved = Vec::with_capacity(changes.len());
    let mut moved = Vec::new();
    for (claim, life) in changes {
        let mut claim = Claim { life: *life, ..claim.clone() };
        if claim.history.last().is_none_or(|last| last.stage != life.stage()) {
            claim.history.push(Transition { stage: life.stage(), time: now });
            moved.push(saved.len());
        }
        saved.push(claim);
    }
    let moved: Vec<&Claim> = moved.into_iter().filter_map(|index| saved.get(index)).collect();
    insert_transitions(tx, &moved, now).await?;
    let settled: Vec<ClaimId> = saved.iter().filter(|it| it.life.is_final()).map(|it| it.id).collect();
    hold::abandon_of_claims(tx, &settled).await?;
    Ok(saved)
}

/// Gives a locked claim another lifetime.
pub async fn save_lifetime(tx: &Transaction, claim: ClaimId, lifetime: Lifetime) -> Result<(), Error> {
    let expire_time = row::system_time(lifetime.expire_time)?;
    let extend_time = lifetime.extend_time.map(row::system_time).transpose()?;
    tx.execute(UPDATE_LIFETIME, &[&claim.as_uuid(), &expire_time, &extend_time]).await?;
    Ok(())
}

/// One statement each, sent one behind the other: in one for all of them the planner may read the whole table.
async fn update(tx: &Transaction, changes: &[(Claim, Life)]) -> Result<(), Error> {
    let updates = changes.iter().map(|(claim, life)| async move {
        let (state, reason) = row::stage_columns(life.stage());
        let payment = life.payment().map(|payment| payment.as_uuid());
        tx.execute(UPDATE, &[&claim.id.as_uuid(), &state, &reason, &payment]).await
    });
    futures_util::future::try_join_all(updates).await?;
    Ok(())
}

async fn update_holds(tx: &Transaction, changes: &[(Claim, Life)]) -> Result<(), Error> {
    let changed = changes.iter().filter(|(claim, life)| life.hold != claim.life.hold);
    let (ids, states): (Vec<Uuid>, Vec<&str>) =
        changed.map(|(claim, life)| (claim.hold.as_uuid(), row::hold_column(life.hold))).unzip();
    if !ids.is_empty() {
        tx.execute(UPDATE_HOLDS, &[&ids, &states]).await?;
    }
    Ok(())
}

async fn update_allowances(
    tx: &Transaction,
    changes: &[(Claim, Life)],
    now: Timestamp,
    rule: CooldownRule,
) -> Result<(), Error> {
    let keys: Vec<_> = changes.iter().map(|(claim, _)| (claim.event.id, claim.customer)).collect();
    let mut allowances = allowance::lock(tx, &keys).await?;
    let before = allowances.clone();
    for ((claim, life), key) in changes.iter().zip(&keys) {
        let kept = allowances.get_mut(key).ok_or(Error::Stored { what: "allowance" })?;
        *kept = kept.after(claim.life, *life, claim.unit_count(), now, rule);
    }
    let changed: Vec<_> =
        allowances.into_iter().filter(|(key, kept)| before.get(key) != Some(kept)).collect();
    allowance::save(tx, &changed).await
}

async fn insert_transitions(tx: &Transaction, moved: &[&Claim], now: Timestamp) -> Result<(), Error> {
    if moved.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = moved.iter().map(|claim| claim.id.as_uuid()).collect();
    let numbers: Vec<i32> =
        moved.iter().map(|claim| i32::try_from(claim.history.len()).unwrap_or(i32::MAX)).collect();
    let (states, reasons): (Vec<&str>, Vec<Option<&str>>) =
        moved.iter().map(|claim| row::stage_columns(claim.life.stage())).unzip();
    tx.execute(INSERT_TRANSITIONS, &[&ids, &numbers, &states, &reasons, &row::system_time(now)?]).await?;
    Ok(())
}

/// The place of the next element, counted from 1 as Postgres does.
fn position<T>(column: &[T]) -> i32 {
    i32::try_from(column.len()).unwrap_or(i32::MAX).saturating_add(1)
}

fn fencing_number(claim: &Claim) -> Result<Option<i64>, Error> {
    match claim.origin {
        Origin::Turn { fencing_number } => {
            i64::try_from(fencing_number).map(Some).map_err(|_large| Error::Stored { what: "fencing_number" })
        }
        Origin::Invitation { .. } => Ok(None),
    }
}

fn quota(claim: &Claim) -> Option<Uuid> {
    match claim.origin {
        Origin::Turn { .. } => None,
        Origin::Invitation { quota } => Some(quota.as_uuid()),
    }
}
