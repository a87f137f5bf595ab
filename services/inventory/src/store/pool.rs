//! The pools of free units in Redis: a bitmap per sector. They propose, and may be wrong, empty or gone at any time; what
//! they say becomes true only by a row in Postgres.

use std::{
    collections::HashSet,
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

use onsale_kit::{deadline::Deadline, error::Chain};
use onsale_storage::redis::{Command, Error, FromRedisValue, Key, Redis, Script};
use onsale_types::{EventId, SectorId};
use tokio::time::Instant;

use super::keys::Keys;
use crate::{
    config::PoolConfig,
    domain::{event::Sector, unit_set::UnitSet},
};

static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new("take_units", include_str!("take.lua")));
static TAKE_THESE: LazyLock<Script> =
    LazyLock::new(|| Script::new("take_these", include_str!("take_these.lua")));
static MARK: LazyLock<Script> = LazyLock::new(|| Script::new("mark_units", include_str!("mark.lua")));

/// A pool nobody has written to for so long belongs to a sale that is over. Should it not, it is built again.
const LIFETIME_SECONDS: u64 = 7 * 24 * 60 * 60;

/// What a pool answers to a request for units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// These were taken out of it, in rising order: all that were asked for, or as many as it has.
    Units(Vec<u32>),
    /// There is no such pool, or none that can be this sector's.
    Missing,
    /// Redis does not answer.
    Away,
}

/// The pools of all sectors.
#[derive(Debug)]
pub struct Pools {
    redis: Redis,
    keys: Keys,
    patience: Duration,
    away_for: Duration,
    /// Until then Redis is not asked: it failed, and everybody would wait for it again.
    away_until: Mutex<Option<Instant>>,
}

impl Pools {
    /// The pools in `redis`.
    #[must_use]
    pub fn new(redis: Redis, keys: Keys, config: &PoolConfig) -> Self {
        let PoolConfig { patience, away_for, .. } = *config;
        Self { redis, keys, patience, away_for, away_until: Mutex::new(None) }
    }

    /// Takes the first `count` units out of the pool, or as many as it has.
    pub async fn take(&self, event_id: EventId, sector: &Sector, count: u32) -> Taken {
        let command = |key: Key| TAKE.call().key(&key).arg(count);
        match self.run::<Option<Vec<u32>>>(event_id, sector.id, command).await {
            None => Taken::Away,
            // Somebody wrote a longer one: no unit of it can be trusted.
            Some(Some(units)) if units.iter().any(|unit| *unit > sector.capacity) => Taken::Missing,
            Some(Some(units)) => Taken::Units(units),
            Some(None) => Taken::Missing,
        }
    }

    /// Takes those of `units` out of the pool that it has.
    pub async fn take_these(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) -> Taken {
        let command = |key: Key| TAKE_THESE.call().key(&key).arg(units);
        match self.run::<Option<HashSet<u32>>>(event_id, sector_id, command).await {
            None => Taken::Away,
            Some(Some(missed)) => {
                Taken::Units(units.iter().copied().filter(|unit| !missed.contains(unit)).collect())
            }
            Some(None) => Taken::Missing,
        }
    }

    /// What is in the pool. The outer none: Redis does not answer; the inner: there is no pool.
    pub async fn read(&self, event_id: EventId, sector: &Sector) -> Option<Option<UnitSet>> {
        let command = |key: Key| Command::new("GET").key(&key).idempotent();
        let bitmap = self.run::<Option<Vec<u8>>>(event_id, sector.id, command).await?;
        Some(bitmap.map(|bitmap| UnitSet::from_bytes(&mirrored(&bitmap), sector.capacity)))
    }

    /// Makes `free` the whole pool.
    pub async fn replace(&self, event_id: EventId, sector_id: SectorId, free: &UnitSet) {
        let bitmap = mirrored(free.as_bytes());
        let command = |key: Key| {
            Command::new("SET").key(&key).arg(&bitmap[..]).arg("EX").arg(LIFETIME_SECONDS).idempotent()
        };
        self.run::<()>(event_id, sector_id, command).await;
    }

    /// Puts units into the pool that Postgres has given back, or that were taken in vain.
    pub async fn put_back(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) {
        self.mark(event_id, sector_id, units, 1).await;
    }

    /// Takes units out of the pool that Postgres has given away without asking it.
    pub async fn take_out(&self, event_id: EventId, sector_id: SectorId, units: &[u32]) {
        self.mark(event_id, sector_id, units, 0).await;
    }

    /// Removes the pool: nothing of it will be reserved any more.
    pub async fn remove(&self, event_id: EventId, sector_id: SectorId) {
        let command = |key: Key| Command::new("DEL").key(&key).idempotent();
        self.run::<()>(event_id, sector_id, command).await;
    }

    async fn mark(&self, event_id: EventId, sector_id: SectorId, units: &[u32], value: u8) {
        if !units.is_empty() {
            let command = |key: Key| MARK.call().key(&key).arg(value).arg(units);
            self.run::<()>(event_id, sector_id, command).await;
        }
    }

    /// Runs one command on a pool, within our patience. None when Redis does not answer: what was to be changed stays as it
    /// is, and is corrected by the reconciler or by the next who needs it.
    async fn run<T: FromRedisValue>(
        &self,
        event_id: EventId,
        sector_id: SectorId,
        command: impl FnOnce(Key) -> Command,
    ) -> Option<T> {
        if self.is_away() {
            return None;
        }
        let deadline = Deadline::after(self.patience);
        let result: Result<T, Error> = async {
            let key = self.keys.pool(event_id, sector_id)?;
            deadline.scope(self.redis.run(command(key))).await
        }
        .await;
        match result {
            Ok(answer) => Some(answer),
            Err(error) => {
                // A caller in a hurry proves nothing about Redis.
                if error.is_transient() && deadline.is_past() {
                    *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) =
                        Instant::now().checked_add(self.away_for);
                }
                tracing::warn!(%sector_id, error = %Chain(&error), "failed to use the pool of a sector");
                None
            }
        }
    }

    fn is_away(&self) -> bool {
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// Redis counts the bits of a byte from the highest, the contract from the lowest.
fn mirrored(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.reverse_bits()).collect()
}
