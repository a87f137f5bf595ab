//! Leader election with fencing epochs: at most one process acts as the leader of a name, and a process that only thinks
//! it still is can write nothing.
//!
//! Redis says who leads now: a key with a time to live, taken and renewed by its holder. Redis may forget, fail over to
//! a copy that is behind, or let two processes believe at once (a pause, a jumping clock). Therefore every tenure has an
//! epoch from Postgres, raised by one at each takeover, and every transaction of a leader begins with [`Lease::guard`],
//! which fails once a higher epoch exists. Correctness rests on that alone; clocks only decide how soon a new leader
//! comes.

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

/// How leases are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseConfig {
    /// How long a lease lasts without renewal: after a crash the next leader comes this much later. Above the time of a
    /// Redis failover, or each failover changes the leaders.
    #[serde(with = "humantime_serde")]
    pub ttl: Duration,
    /// How often a leader renews.
    #[serde(with = "humantime_serde")]
    pub renew_every: Duration,
    /// How long before the end of its lease a leader stops by itself: covers clocks that run at different speeds.
    #[serde(with = "humantime_serde")]
    pub margin: Duration,
    /// How often a follower looks whether the lease was given back.
    #[serde(with = "humantime_serde")]
    pub try_every: Duration,
    /// How many names of one process are asked about at the same time.
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
    /// Refuses spans with which no lease could be kept.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |message| Err(Error::Config { message });
        if self.renew_every.is_zero() || self.try_every.is_zero() || self.concurrency == 0 {
            return refuse("renew_every, try_every and concurrency must not be 0");
        }
        // Two renewals may fail before the lease is lost.
        if self.renew_every.saturating_mul(2).saturating_add(self.margin) >= self.ttl {
            return refuse("ttl must be above the margin and two renewals");
        }
        Ok(())
    }
}

/// What can go wrong with a lease.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting makes no sense.
    #[error("invalid lease settings: {message}")]
    Config {
        /// What is wrong.
        message: &'static str,
    },
    /// This process is a candidate for the name already.
    #[error("already a candidate for the lease {name}")]
    Entered {
        /// The lease.
        name: String,
    },
    /// The election has ended, as the process is shutting down.
    #[error("the election has ended")]
    Ended,
    /// Another has led since. The transaction must not commit.
    #[error("epoch {epoch} of the lease {name} is over")]
    Fenced {
        /// The lease.
        name: String,
        /// Our epoch.
        epoch: i64,
        /// The epoch now; none when the lease's row is gone.
        current: Option<i64>,
    },
    /// Postgres failed.
    #[error("failed to ask postgres about a lease")]
    Postgres(#[from] postgres::Error),
    /// Redis failed.
    #[error("failed to ask redis about a lease")]
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

/// Whether this process leads.
#[derive(Clone, Debug)]
pub enum Leadership {
    /// It does, as far as it knows.
    Leader(Lease),
    /// It does not.
    Follower,
}

impl Leadership {
    /// The lease, if there is one.
    #[must_use]
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Leader(lease) => Some(lease),
            Self::Follower => None,
        }
    }
}

/// One tenure. Clones are the same tenure.
#[derive(Clone, Debug)]
pub struct Lease {
    state: Arc<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    name: String,
    epoch: i64,
    /// Moves on with each renewal.
    until: Mutex<Instant>,
    /// Set by a guard that found a higher epoch; the election then steps down at once.
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

    /// What is led.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The epoch: higher than that of every leader before.
    #[must_use]
    pub fn epoch(&self) -> i64 {
        self.state.epoch
    }

    /// Whether it is still worth beginning something, as far as the local clock knows. Never a reason to skip
    /// [`Lease::guard`].
    #[must_use]
    pub fn is_current(&self) -> bool {
        !self.is_fenced() && Instant::now() < self.until()
    }

    /// Fails unless this tenure is the latest, and keeps it the latest until `transaction` ends. To be called in every
    /// transaction of a leader, before its first write: a takeover waits for the transactions that passed, and those
    /// that come after it do not pass.
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
