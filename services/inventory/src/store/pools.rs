//! The pools of free units in Redis: a bitmap per sector. They propose, and may be wrong, empty or gone at any time; what
//! they say becomes true only by a row in Postgres.

use std::{collections::HashSet, sync::LazyLock, time::Duration};

use onsale_kit::{deadline::Deadline, error::Chain};
use onsale_storage::redis::{Command, Error, FromRedisValue, Key, Redis, Script};
use onsale_types::{EventId, SectorId};

use super::{
    keys::Keys,
    pause::{Pause, Turn},
};
use crate::{
    config::PoolConfig,
    domain::{event::Sector, unit_set::UnitSet},
};

static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new("take_units", include_str!("take.lua")));
static SET_UNITS: LazyLock<Script> =
    LazyLock::new(|| Script::new("set_units", include_str!("set_units.lua")));

/// A pool nobody has written to for so long belongs to a sale that is over. Should it not, it is built again.
const LIFETIME_SECONDS: u64 = 7 * 24 * 60 * 60;

/// What Redis says of a key that is no bitmap.
const WRONG_TYPE: &str = "WRONGTYPE";

/// Units that one command names; more are named by several.
const UNITS_PER_COMMAND: usize = 10_000;

/// Why a pool was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// There is none.
    Missing,
    /// What there is is no bitmap.
    Broken,
    /// Redis does not answer.
    Unavailable,
}

/// The pools of all sectors.
#[derive(Debug)]
pub struct Pools {
    redis: Redis,
    keys: Keys,
    patience: Duration,
    away_for: Duration,
    /// While it lasts Redis is not asked: it failed, and everybody would wait for it again.
    away: Pause,
}

impl Pools {
    /// The pools in `redis`.
    #[must_use]
    pub fn new(redis: Redis, keys: Keys, config: &PoolConfig) -> Self {
        let PoolConfig { patience, away_for, .. } = *config;
        Self { redis, keys, patience, away_for, away: Pause::default() }
    }

    /// Whether Redis failed a moment ago: whoever asks would be told so.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.away.is_on()
    }

    /// Takes the first `count` units out of the pool, or as many as it has. Answers them, in rising order.
    pub async fn take(&self, event_id: EventId, sector: &Sector, count: u32) -> Result<Vec<u32>, PoolError> {
        let command = |key: Key| TAKE.call().key(&key).arg(count);
        let units = self.run::<Option<Vec<u32>>>(event_id, sector.id, command).await?;
        let mut units = units.ok_or(PoolError::Missing)?;
        // Somebody may have written a longer one.
        units.retain(|unit| *unit <= sector.capacity);
        Ok(units)
    }

    /// Takes those of `units` out of the pool that it has. Answers them.
    pub async fn take_these(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        units: &[u32],
    ) -> Result<Vec<u32>, PoolError> {
        let missed = self.set(event_id, sector_id, units, 0).await?;
        Ok(units.iter().copied().filter(|unit| !missed.contains(unit)).collect())
    }

    /// What is in the pool.
    pub async fn read(&self, event_id: EventId, sector: &Sector) -> Result<UnitSet, PoolError> {
        let command = |key: Key| Command::new("GET").key(&key).idempotent();
        let bitmap = self.run::<Option<Vec<u8>>>(event_id, sector.id, command).await?;
        let bitmap = bitmap.ok_or(PoolError::Missing)?;
        Ok(UnitSet::from_bytes(&mirrored(&bitmap), sector.capacity))
    }

    /// Makes a pool of `free` where there is `fault`; not when somebody else has made it by now.
    pub async fn make(&self, event_id: EventId, sector_id: SectorId, free: &UnitSet, fault: PoolError) {
        let bitmap = mirrored(free.as_bytes());
        let command = |key: Key| {
            let set = Command::new("SET").key(&key).arg(&bitmap[..]).arg("EX").arg(LIFETIME_SECONDS);
            if fault == PoolError::Broken { set } else { set.arg("NX") }.idempotent()
        };
        let _told_already = self.run::<Option<()>>(event_id, sector_id, command).await;
    }

    /// Puts units into the pool that Postgres has given back, or that were taken in vain. Answers how many it had not.
    pub async fn put_back(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) -> usize {
        self.mark(event_id, sector_id, units, 1).await
    }

    /// Takes units out of the pool that Postgres has given away without asking it. Answers how many it had.
    pub async fn take_out(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) -> usize {
        self.mark(event_id, sector_id, units, 0).await
    }

    /// Removes the pool: nothing of it will be reserved any more.
    pub async fn remove(&self, event_id: EventId, sector_id: SectorId) {
        let command = |key: Key| Command::new("DEL").key(&key).idempotent();
        let _told_already = self.run::<()>(event_id, sector_id, command).await;
    }

    /// Answers how many changed. Should it fail, the pool is wrong until somebody minds or the reconciler comes.
    async fn mark(&self, event_id: EventId, sector_id: SectorId, units: &[u32], value: u8) -> usize {
        match self.set(event_id, sector_id, units, value).await {
            Ok(same) => units.len().saturating_sub(same.len()),
            Err(PoolError::Missing | PoolError::Broken | PoolError::Unavailable) => 0,
        }
    }

    /// Makes the bits of `units` what `value` says. Answers those that were so before.
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

    /// Runs one command on a pool, within our patience. When it cannot, what was to be changed stays as it is.
    async fn run<T: FromRedisValue>(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        command: impl FnOnce(Key) -> Command,
    ) -> Result<T, PoolError> {
        let turn = self.away.turn(self.patience).ok_or(PoolError::Unavailable)?;
        let deadline = Deadline::after(self.patience);
        let result: Result<T, Error> = async {
            let key = self.keys.pool(event_id, sector_id)?;
            deadline.scope(self.redis.run(command(key))).await
        }
        .await;
        // A caller in a hurry proves nothing about Redis.
        let is_in_a_hurry = Deadline::current().is_some_and(|call| call < deadline);
        if result.as_ref().is_err_and(Error::is_transient) && !is_in_a_hurry {
            self.away.begin(self.away_for);
        } else if turn == Turn::Trial {
            self.away.end();
        }
        result.map_err(|error| {
            tracing::warn!(%sector_id, error = %Chain(&error), "failed to use the pool of a sector");
            let is_broken = matches!(&error, Error::Refused { code, .. } if code == WRONG_TYPE);
            if is_broken { PoolError::Broken } else { PoolError::Unavailable }
        })
    }
}

/// Redis counts the bits of a byte from the highest, the contract from the lowest.
fn mirrored(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.reverse_bits()).collect()
}
