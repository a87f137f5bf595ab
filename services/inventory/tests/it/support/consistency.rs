//! Support for tests of crowds and faults: a second pod, reproducible random numbers, customers who retry, and checks that
//! every unit is accounted for and every free unit can be reserved.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use onsale_proto::inventory::v1 as pb;
use onsale_storage::postgres::column;
use onsale_testkit::{service::TestStores, wait_until};
use onsale_types::SectorId;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{SOON, World, count, reason};

/// Time after a fault within which every free unit can be reserved again.
pub(crate) const REPAIRED_WITHIN: Duration = Duration::from_secs(30);
/// Wait between two attempts of a refused customer.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Violations of the stored invariants.
const INCONSISTENCIES: [(&str, &str); 5] = [
    (
        "taken_count equals the taken units",
        "SELECT count(*) FROM sector_sale s
         WHERE taken_count <> (SELECT count(*) FROM hold_unit u WHERE u.sector_id = s.sector_id)",
    ),
    (
        "sold_count equals the sold units",
        "SELECT count(*) FROM sector_sale s WHERE sold_count <> (
             SELECT count(*) FROM hold_unit u JOIN hold h USING (hold_id)
             WHERE u.sector_id = s.sector_id AND h.state = 'COMMITTED')",
    ),
    (
        "a taken unit exists in its sector",
        "SELECT count(*) FROM hold_unit u LEFT JOIN sector s USING (sector_id)
         WHERE s.sector_id IS NULL OR u.unit > s.capacity",
    ),
    (
        "an active hold has all its units",
        "SELECT count(*) FROM hold h WHERE state <> 'RELEASED' AND (
             SELECT array_agg((sector_id, unit) ORDER BY sector_id, unit)
             FROM unnest(h.unit_sectors, h.units) AS own (sector_id, unit))
             IS DISTINCT FROM (
             SELECT array_agg((sector_id, unit) ORDER BY sector_id, unit) FROM hold_unit u WHERE u.hold_id = h.hold_id)",
    ),
    (
        "a unit belongs to an active hold",
        "SELECT count(*) FROM hold_unit u LEFT JOIN hold h USING (hold_id)
         WHERE h.state IS NULL OR h.state = 'RELEASED'",
    ),
];

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(number: u32) -> Self {
        Self(u64::from(number) << 32 | 0x9e37_79b9)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        // The SplitMix64 algorithm.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((mixed ^ (mixed >> 31)) % u64::from(end)).unwrap()
    }

    pub(crate) fn one_in(&mut self, many: u32) -> bool {
        self.below(many) == 0
    }
}

/// The taken units of a sector, each with the id and the state of its hold.
pub(crate) type Taken = BTreeMap<u32, (String, String)>;

impl World {
    /// Starts another pod of the service on the same stores.
    pub(crate) async fn twin(&self, settings: &[(&str, &str)]) -> Self {
        let database = self.service.database.share();
        Self::start_on_with(TestStores { database, redis: self.service.redis.clone() }, settings).await
    }

    /// Reserves, retrying until the answer is final: the hold, or a permanent refusal.
    pub(crate) async fn reserve_until_final(
        &self,
        message: &pb::ReserveUnitsRequest,
    ) -> Result<pb::Hold, Status> {
        until_final(async || Ok(self.reserve(message.clone()).await?.hold.unwrap())).await
    }

    /// Commits, retrying until the answer is final.
    pub(crate) async fn commit_until_final(&self, hold_id: &str) -> Result<pb::Hold, Status> {
        until_final(async || self.commit(hold_id).await).await
    }

    /// Releases, retrying until the answer is final.
    pub(crate) async fn release_until_final(&self, hold_id: &str) -> pb::Hold {
        until_final(async || self.release(hold_id).await).await.unwrap()
    }

    /// Returns the taken units of a sector with their holds.
    pub(crate) async fn taken_of(&self, event: &pb::Event, sector: usize) -> Taken {
        let sector_id: SectorId = event.sectors[sector].sector_id.parse().unwrap();
        let sql =
            "SELECT u.unit, h.hold_id::text AS hold_id, h.state FROM hold_unit u JOIN hold h USING (hold_id)
            WHERE u.sector_id = $1";
        let rows = self.postgres.query("taken units", sql, &[&sector_id.as_uuid()]).await.unwrap();
        let unit = |row| u32::try_from(column::<i32>(row, "unit").unwrap()).unwrap();
        let hold = |row| (column(row, "hold_id").unwrap(), column(row, "state").unwrap());
        rows.iter().map(|row| (unit(row), hold(row))).collect()
    }

    /// Asserts that the rows are consistent and that responses agree with them. No call may be running.
    pub(crate) async fn assert_consistent(&self, event: &pb::Event) {
        for (rule, sql) in INCONSISTENCIES {
            assert_eq!(self.number(sql, &[]).await, 0, "{rule}");
        }
        for sector in 0..event.sectors.len() {
            let taken = self.taken_of(event, sector).await;
            let expected = expected(&event.sectors[sector], &taken);
            wait_until("what is free is published", SOON, async || {
                let published = self.availability(event).await.sectors.remove(sector);
                (published.free_count, published.held_count, published.free_map) == expected
            })
            .await;
        }
    }

    /// Asserts that every free unit can be reserved within the time of a repair, and no more than those.
    pub(crate) async fn assert_sells_out(&self, event: &pb::Event) {
        let begun = Instant::now();
        for sector in 0..event.sectors.len() {
            let capacity = event.sectors[sector].capacity;
            let mut free = capacity - u32::try_from(self.taken_of(event, sector).await.len()).unwrap();
            while free > 0 {
                let message = crate::support::a_reservation(event, vec![count(event, sector, free.min(8))]);
                let hold = self.reserve_until_final(&message).await;
                let hold = hold.unwrap_or_else(|status| panic!("{free} are free: {status:?}"));
                free -= u32::try_from(hold.items[0].units.len()).unwrap();
            }
            let one_more = self.hold(event, vec![count(event, sector, 1)]).await;
            assert_eq!(reason(one_more), (Code::FailedPrecondition, "NOT_ENOUGH_UNITS".to_owned()));
            assert_eq!(self.taken_of(event, sector).await.len(), usize::try_from(capacity).unwrap());
        }
        assert!(begun.elapsed() < REPAIRED_WITHIN, "{:?}", begun.elapsed());
        self.assert_consistent(event).await;
    }
}

/// Retries until there is a final answer. Every other answer must be a typed error that allows a retry.
async fn until_final(ask: impl AsyncFn() -> Result<pb::Hold, Status>) -> Result<pb::Hold, Status> {
    let begun = Instant::now();
    loop {
        let status = match ask().await {
            Ok(hold) => return Ok(hold),
            Err(status) => status,
        };
        assert!(status.get_details_error_info().is_some(), "an untyped error: {status:?}");
        match status.code() {
            Code::FailedPrecondition => return Err(status),
            // On an overloaded machine the deadline may pass as well.
            Code::Unavailable | Code::Aborted | Code::ResourceExhausted | Code::DeadlineExceeded => {}
            _ => panic!("neither final nor retryable: {status:?}"),
        }
        assert!(begun.elapsed() < REPAIRED_WITHIN, "no final answer within {REPAIRED_WITHIN:?}: {status:?}");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

/// Returns the free and held units of a sector, and the map of the free ones if it has seats.
fn expected(sector: &pb::Sector, taken: &Taken) -> (u32, u32, Vec<u8>) {
    let free = (1..=sector.capacity).filter(|unit| !taken.contains_key(unit));
    let mut map = vec![0_u8; usize::try_from(sector.capacity.div_ceil(8)).unwrap()];
    for unit in free.clone() {
        map[usize::try_from((unit - 1) / 8).unwrap()] |= 1 << ((unit - 1) % 8);
    }
    if sector.layout.is_none() {
        map.clear();
    }
    let held = taken.values().filter(|(_, state)| state == "HELD").count();
    (u32::try_from(free.count()).unwrap(), u32::try_from(held).unwrap(), map)
}

/// Asserts that a refusal agrees with the stock: those units are taken, or fewer are free than asked for.
pub(crate) fn assert_short(message: &pb::ReserveUnitsRequest, status: &Status) {
    let info = status.get_details_error_info().unwrap();
    let asked = message.selections.iter().find(|it| it.sector_id == info.metadata["sector_id"]).unwrap();
    match info.reason.as_str() {
        "NOT_ENOUGH_UNITS" => {
            let free: u32 = info.metadata["free_count"].parse().unwrap();
            assert!(free < asked.count, "{free} are free and {} were asked for", asked.count);
        }
        "UNITS_TAKEN" => {
            let taken = units(&info.metadata["taken_units"]);
            assert!(!taken.is_empty() && taken.iter().all(|unit| asked.units.contains(unit)), "{taken:?}");
        }
        _ => panic!("{status:?}"),
    }
}

/// Reads unit numbers from error metadata.
pub(crate) fn units(text: &str) -> Vec<u32> {
    text.split(',').map(|unit| unit.parse().unwrap()).collect()
}
