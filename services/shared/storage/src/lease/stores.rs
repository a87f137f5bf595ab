//! Calls of a candidate to Redis and Postgres. Each has a timeout and is safe to repeat.

use std::{sync::LazyLock, time::Duration};

use onsale_kit::deadline::Deadline;

use super::{
    Error,
    candidate::{Answer, LeaseAction},
};
use crate::{
    postgres::{self, Postgres, Transaction, column},
    redis::{Key, Redis, Script},
};

static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new("lease_acquire", include_str!("acquire.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new("lease_renew", include_str!("renew.lua")));
static RELEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new("lease_release", include_str!("release.lua")));

const READ_EPOCH: &str = "SELECT epoch FROM lease WHERE name = $1";
const TAKE_EPOCH: &str = "
    INSERT INTO lease (name, epoch, holder, acquired_at)
    VALUES ($1, $2::bigint + 1, $3, now())
    ON CONFLICT (name) DO UPDATE
    SET epoch = lease.epoch + 1, holder = excluded.holder, acquired_at = excluded.acquired_at
    WHERE lease.epoch = $2::bigint
    RETURNING epoch";
const GUARD: &str = "SELECT epoch FROM lease WHERE name = $1 FOR SHARE";

#[derive(Clone, Debug)]
pub(super) struct Stores {
    pub(super) redis: Redis,
    pub(super) postgres: Postgres,
    pub(super) ttl: Duration,
    pub(super) action_timeout: Duration,
}

impl Stores {
    /// Performs one action. A failure is logged and returned as [`Answer::Failed`].
    pub(super) async fn perform(&self, action: LeaseAction, name: &str, key: &Key, token: &str) -> Answer {
        let work = async {
            match action {
                LeaseAction::Wait { .. } => Ok(Answer::Failed),
                LeaseAction::Acquire => self.acquire(key, token).await,
                LeaseAction::ReadEpoch => self.read_epoch(name).await,
                LeaseAction::Confirm | LeaseAction::Renew => self.renew(key, token).await,
                LeaseAction::TakeEpoch { expected } => self.take_epoch(name, expected, token).await,
            }
        };
        match Deadline::after(self.action_timeout).scope(work).await {
            Ok(answer) => answer,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, lease = name, ?action, "lease action failed, retrying");
                Answer::Failed
            }
        }
    }

    /// Releases the lease, so that the next leader does not wait until it runs out.
    pub(super) async fn release(&self, key: &Key, token: &str) -> Result<(), Error> {
        let call = RELEASE.call().key(key).arg(token).idempotent();
        let _released: bool = Deadline::after(self.action_timeout).scope(self.redis.run(call)).await?;
        Ok(())
    }

    async fn acquire(&self, key: &Key, token: &str) -> Result<Answer, Error> {
        let call = ACQUIRE.call().key(key).arg(token).arg(millis(self.ttl)).idempotent();
        let (held, free_in_millis): (bool, i64) = self.redis.run(call).await?;
        let free_in = u64::try_from(free_in_millis).ok().map(Duration::from_millis);
        Ok(if held { Answer::Held } else { Answer::Refused { free_in } })
    }

    async fn renew(&self, key: &Key, token: &str) -> Result<Answer, Error> {
        let call = RENEW.call().key(key).arg(token).arg(millis(self.ttl)).idempotent();
        let held: bool = self.redis.run(call).await?;
        Ok(if held { Answer::Held } else { Answer::Refused { free_in: None } })
    }

    async fn read_epoch(&self, name: &str) -> Result<Answer, Error> {
        match self.postgres.query_opt("lease read", READ_EPOCH, &[&name]).await? {
            Some(row) => Ok(Answer::Epoch(column(&row, "epoch")?)),
            None => Ok(Answer::Epoch(0)),
        }
    }

    async fn take_epoch(&self, name: &str, expected: i64, token: &str) -> Result<Answer, Error> {
        match self.postgres.query_opt("lease take", TAKE_EPOCH, &[&name, &expected, &token]).await? {
            Some(row) => Ok(Answer::Epoch(column(&row, "epoch")?)),
            None => Ok(Answer::Refused { free_in: None }),
        }
    }
}

/// Returns the epoch of the lease `name` and keeps it unchanged until `transaction` ends.
///
/// `FOR SHARE` is the weakest lock that works: raising the epoch updates the row without changing its key and takes a
/// NO KEY UPDATE lock, which conflicts with SHARE but not with KEY SHARE. So a guard and a takeover exclude each other:
///
/// - If the guard came first, the takeover waits for the end of this transaction. Its writes are committed before the
///   higher epoch exists, so no successor misses them. If the holder is paused, Postgres ends its idle transaction and
///   rolls its writes back.
/// - If the takeover came first, the guard waits for its commit. At READ COMMITTED it then reads the row again and sees
///   the higher epoch. At higher levels it fails with a serialization error, is retried, and sees it then.
///
/// Guards of several transactions share the lock and do not wait for each other.
pub(super) async fn guarded_epoch(
    transaction: &Transaction,
    name: &str,
) -> Result<Option<i64>, postgres::Error> {
    match transaction.query_opt(GUARD, &[&name]).await? {
        Some(row) => column(&row, "epoch").map(Some),
        None => Ok(None),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
