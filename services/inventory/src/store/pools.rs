//! Pools of free units in Redis: one bitmap per sector. They offer units and may be wrong, empty or missing at any time; only a
//! row in Postgres assigns a unit to a hold or a quota.

use std::{collections::HashSet, sync::LazyLock};

use onsale_kit::{
    breaker::{Breaker, Rejection},
    error::Chain,
};
use onsale_storage::redis::{Command, Error, FromRedisValue, Key, Redis, Script};
use onsale_types::{EventId, SectorId};

use super::keys::Keys;
use crate::{
    config::PoolConfig,
    domain::{event::Sector, unit_set::UnitSet},
};

static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new("take_units", include_str!("take.lua")));
static SET_UNITS: LazyLock<Script> =
    LazyLock::new(|| Script::new("set_units", include_str!("set_units.lua")));

/// Expiry of a pool after its creation. A pool that expires during a sale is created again.
const LIFETIME_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Error code of Redis for a key that is not a bitmap.
const WRONG_TYPE: &str = "WRONGTYPE";

/// Units in one command; larger sets are split.
const UNITS_PER_COMMAND: usize = 10_000;

/// A reason for which a pool cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolError {
    Missing,
    /// The key is not a bitmap.
    Broken,
    /// Redis failed in another way or did not answer in time, or the breaker is open.
    Unavailable,
}

/// The pools of all sectors.
#[derive(Debug)]
pub(crate) struct Pools {
    redis: Redis,
    keys: Keys,
    /// Keeps calls from waiting for a Redis that has just failed.
    breaker: Breaker<()>,
}

impl Pools {
    pub(crate) fn new(redis: Redis, keys: Keys, config: &PoolConfig) -> Self {
        Self { redis, keys, breaker: Breaker::new(config.patience, config.away_for) }
    }

    /// Returns true while the breaker refuses calls.
    #[must_use]
    pub(crate) fn is_unavailable(&self) -> bool {
        self.breaker.is_open(&())
    }

    /// Takes the first `count` units out of the pool, or as many as it has, and returns them in rising order.
    pub(crate) async fn take(
        &self,
        event_id: EventId,
        sector: &Sector,
        count: u32,
    ) -> Result<Vec<u32>, PoolError> {
        let command = |key: Key| TAKE.call().key(&key).arg(count);
        let units = self.run::<Option<Vec<u32>>>(event_id, sector.id, command).await?;
        let mut units = units.ok_or(PoolError::Missing)?;
        // A corrupted pool may be longer than its sector.
        units.retain(|unit| *unit <= sector.capacity);
        Ok(units)
    }

    /// Takes those of `units` out of the pool that it has, and returns them.
    pub(crate) async fn take_these(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        units: &[u32],
    ) -> Result<Vec<u32>, PoolError> {
        let missed = self.set(event_id, sector_id, units, 0).await?;
        Ok(units.iter().copied().filter(|unit| !missed.contains(unit)).collect())
    }

    /// Returns the units of the pool.
    pub(crate) async fn read(&self, event_id: EventId, sector: &Sector) -> Result<UnitSet, PoolError> {
        let command = |key: Key| Command::new("GET").key(&key).idempotent();
        let bitmap = self.run::<Option<Vec<u8>>>(event_id, sector.id, command).await?;
        let bitmap = bitmap.ok_or(PoolError::Missing)?;
        Ok(UnitSet::from_bytes(&mirrored(&bitmap), sector.capacity))
    }

    /// Creates a pool of `free` after `error`. A missing pool that another process has created meanwhile stays.
    pub(crate) async fn create(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        free: &UnitSet,
        error: PoolError,
    ) {
        let bitmap = mirrored(free.as_bytes());
        let command = |key: Key| {
            let set = Command::new("SET").key(&key).arg(&bitmap[..]).arg("EX").arg(LIFETIME_SECONDS);
            if error == PoolError::Broken { set } else { set.arg("NX") }.idempotent()
        };
        let _logged = self.run::<Option<()>>(event_id, sector_id, command).await;
    }

    /// Adds units that were freed in Postgres, or taken from the pool and not used. Returns the number that the pool lacked.
    pub(crate) async fn put_back(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) -> usize {
        self.mark(event_id, sector_id, units, 1).await
    }

    /// Removes units that were taken in Postgres without the pool. Returns the number that the pool had.
    pub(crate) async fn take_out(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) -> usize {
        self.mark(event_id, sector_id, units, 0).await
    }

    /// Deletes the pool of an ended event.
    pub(crate) async fn remove(&self, event_id: EventId, sector_id: SectorId) {
        let command = |key: Key| Command::new("DEL").key(&key).idempotent();
        let _logged = self.run::<()>(event_id, sector_id, command).await;
    }

    /// Sets the bits of `units` and returns the number that changed. If that fails, the pool is wrong until a conflict or the
    /// reconciler repairs it.
    async fn mark(&self, event_id: EventId, sector_id: SectorId, units: &[u32], value: u8) -> usize {
        match self.set(event_id, sector_id, units, value).await {
            Ok(same) => units.len().saturating_sub(same.len()),
            Err(PoolError::Missing | PoolError::Broken | PoolError::Unavailable) => 0,
        }
    }

    /// Sets the bits of `units` to `value` and returns the units whose bits had that value before.
    async fn set(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        units: &[u32],
        value: u8,
    ) -> Result<HashSet<u32>, PoolError> {
        let mut same = HashSet::new();
        for units in units.chunks(UNITS_PER_COMMAND) {
            let command = |key: Key| SET_UNITS.call().key(&key).arg(value).arg(units);
            let answer = self.run::<Option<HashSet<u32>>>(event_id, sector_id, command).await?;
            same.extend(answer.ok_or(PoolError::Missing)?);
        }
        Ok(same)
    }

    /// Runs one command on a pool through the breaker. A failed command may have taken effect.
    async fn run<T: FromRedisValue>(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        command: impl FnOnce(Key) -> Command,
    ) -> Result<T, PoolError> {
        let work = async {
            let key = self.keys.pool(event_id, sector_id)?;
            self.redis.run(command(key)).await
        };
        self.breaker.call((), Error::is_transient, work).await.map_err(|rejection| {
            let Rejection::Failed(error) = rejection else { return PoolError::Unavailable };
            tracing::warn!(%sector_id, error = %Chain(&error), "pool command failed, units come from Postgres");
            let is_broken = matches!(&error, Error::Refused { code, .. } if code == WRONG_TYPE);
            if is_broken { PoolError::Broken } else { PoolError::Unavailable }
        })
    }
}

/// Converts between the bit orders: Redis counts the bits of a byte from the highest, [`UnitSet`] from the lowest.
fn mirrored(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.reverse_bits()).collect()
}
