//! Leader election with fencing epochs: at most one process at a time writes as the leader of a name.
//!
//! Redis holds the current leader in a key with a time to live, which the holder renews. Redis alone is not safe: it
//! can lose the key, fail over to a stale replica, or let two processes believe that they lead (after a pause or a
//! clock jump). Therefore every tenure has an epoch from Postgres, raised by one at each takeover, and every
//! transaction of a leader starts with [`Lease::guard`], which fails once a higher epoch exists. Safety depends on the
//! epoch alone; clocks only affect how fast a new leader takes over.

mod candidate;
mod election;
#[cfg(test)]
mod model;
mod stores;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use onsale_kit::error::{Kind, Reason, ServiceError};
use onsale_proto::r#type::v1::ErrorReason;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{sync::Notify, time::Instant};

pub use self::election::{Candidacy, Election};
use crate::{
    postgres::{self, Transaction},
    redis,
};

/// Timing of leases, and how many a process handles in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseConfig {
    /// Lifetime of a lease without renewal (default 10 s), and so the delay of a takeover after a crash. It should
    /// exceed the duration of a Redis failover, or each failover changes the leaders.
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    /// Interval between renewals by the leader (default 2.5 s).
    #[serde(with = "humantime_serde")]
    pub renew_every: Duration,
    /// Time before the end of its lease at which a leader steps down (default 1 s). Covers clocks that run at different
    /// speeds.
    #[serde(with = "humantime_serde")]
    pub margin: Duration,
    /// Longest wait of a follower between two attempts to take the lease (default 500 ms).
    #[serde(with = "humantime_serde")]
    pub try_every: Duration,
    /// Maximum number of leases of one process that have a call in flight (default 32).
    pub concurrency: usize,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            renew_every: Duration::from_millis(2_500),
            margin: Duration::from_secs(1),
            try_every: Duration::from_millis(500),
            concurrency: 32,
        }
    }
}

impl LeaseConfig {
    /// Refuses intervals of 0 and a `ttl` that does not leave room for two failed renewals.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message| Err(Error::Config { message });
        if self.renew_every.is_zero() || self.try_every.is_zero() || self.concurrency == 0 {
            return refuse("renew_every, try_every and concurrency must not be 0");
        }
        // Two renewals may fail before the lease is lost.
        if self.renew_every.saturating_mul(2).saturating_add(self.margin) >= self.ttl {
            return refuse("ttl must exceed margin plus twice renew_every");
        }
        Ok(())
    }
}

/// An error of an election or of a fenced transaction.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of range.
    #[error("invalid lease settings: {message}")]
    Config {
        /// Violated rule, for the message.
        message: &'static str,
    },
    /// This process already is a candidate for the lease.
    #[error("already a candidate for the lease {name}")]
    Entered {
        /// Name of the lease.
        name: String,
    },
    /// The election has ended because the process is shutting down.
    #[error("the election has ended")]
    Ended,
    /// Another process has taken over. The transaction must not commit.
    #[error("epoch {epoch} of the lease {name} has ended")]
    Fenced {
        /// Name of the lease.
        name: String,
        /// Epoch of this tenure.
        epoch: i64,
        /// Current epoch; `None` if the lease's row does not exist.
        current: Option<i64>,
    },
    /// Reading the epoch in Postgres failed.
    #[error("lease query failed in postgres")]
    Postgres(#[from] postgres::Error),
    /// A call to Redis failed, or the name is not valid in a key.
    #[error("lease command failed in redis")]
    Redis(#[from] redis::Error),
}

impl ServiceError for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Fenced { .. } => Kind::Contended,
            Self::Ended => Kind::Unavailable,
            Self::Postgres(error) => error.kind(),
            Self::Redis(error) => error.kind(),
            Self::Config { .. } | Self::Entered { .. } => Kind::Internal,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Fenced { .. } => ErrorReason::Contended.into(),
            Self::Ended => ErrorReason::Draining.into(),
            Self::Postgres(error) => error.reason(),
            Self::Redis(error) => error.reason(),
            Self::Config { .. } | Self::Entered { .. } => ErrorReason::Internal.into(),
        }
    }
}

/// Role of this process for one name.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// This process holds the lease, as far as it knows.
    Leader(Lease),
    /// Another process leads, or none does.
    Follower,
}

impl Leadership {
    /// Returns the lease if this process leads.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Leader(lease) => Some(lease),
            Self::Follower => None,
        }
    }
}

/// One tenure of a leader. Clones share it.
#[derive(Clone, Debug)]
pub struct Lease {
    state: Arc<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    name: String,
    epoch: i64,
    /// End of the lease by the local clock. Each renewal extends it.
    until: Mutex<Instant>,
    /// Set by a guard that found a higher epoch. The election then steps down immediately.
    fenced: AtomicBool,
    fence_notice: Arc<Notify>,
}

impl Lease {
    fn new(name: String, epoch: i64, until: Instant, fence_notice: Arc<Notify>) -> Self {
        let state = LeaseState {
            name,
            epoch,
            until: Mutex::new(until),
            fenced: AtomicBool::new(false),
            fence_notice,
        };
        Self { state: Arc::new(state) }
    }

    /// Returns the name of the lease.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the epoch, which is higher than that of every earlier tenure.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.state.epoch
    }

    /// Returns true if the lease has neither run out by the local clock nor been fenced. Use it to skip useless work,
    /// never instead of [`Lease::guard`].
    #[must_use]
    pub fn is_current(&self) -> bool {
        !self.is_fenced() && Instant::now() < self.until()
    }

    /// Fails unless this tenure has the highest epoch, and keeps it the highest until `transaction` ends. Call it in
    /// every transaction of a leader, before the first write. A takeover waits for the transactions whose guard passed;
    /// later guards fail.
    pub async fn guard(&self, transaction: &Transaction) -> Result<(), Error> {
        let current = stores::guarded_epoch(transaction, &self.state.name).await?;
        if current == Some(self.state.epoch) {
            return Ok(());
        }
        self.state.fenced.store(true, Ordering::Release);
        self.state.fence_notice.notify_one();
        Err(Error::Fenced { name: self.state.name.clone(), epoch: self.state.epoch, current })
    }

    fn is_fenced(&self) -> bool {
        self.state.fenced.load(Ordering::Acquire)
    }

    fn until(&self) -> Instant {
        *self.state.until.lock()
    }

    fn extend(&self, until: Instant) {
        *self.state.until.lock() = until;
    }
}
