//! Load balancer over a neighbor's addresses: takes the less busy of two random ones.
//!
//! Replaces tonic's balancer, which treats an unreachable address as ready and lets a call discover it. Here connections
//! are opened in the background once there are calls, and a call uses only an open one: while any address is up, no call
//! waits for one that is down.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use rand::RngExt;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::backend::{Availability, Backend, InFlight, Sender, connect};
use crate::{error::Chain, tasks::Tasks};

/// Maximum number of addresses; further ones are ignored. Enough to spread load, few enough for one connection each.
const ADDRESSES_MAX: usize = 64;

/// The cause of a call without a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreachable {
    #[error("failed to look up the address of {neighbor}: {problem}")]
    Unknown { neighbor: &'static str, problem: String },
    #[error("failed to connect to any of the {addresses} addresses of {neighbor}")]
    Down { neighbor: &'static str, addresses: usize },
}

pub(super) struct Balancer {
    neighbor: &'static str,
    connect_timeout: Duration,
    tasks: Tasks,
    addresses: Mutex<Addresses>,
    /// Notifies waiting calls of every change of addresses or connections.
    changed: watch::Sender<()>,
    /// Requests a lookup before its time.
    lookup_wanted: Arc<Notify>,
    is_lookup_failing: AtomicBool,
}

#[derive(Clone)]
enum Addresses {
    /// No lookup has finished yet.
    Unresolved,
    /// Error of the last lookup; none has succeeded so far.
    LookupFailed(String),
    Resolved(Arc<[Arc<Backend>]>),
}

/// A connection for one call.
pub(super) struct Picked {
    pub(super) backend: Arc<Backend>,
    pub(super) sender: Sender,
    pub(super) in_flight: InFlight,
}

enum PickResult {
    Found(Picked),
    /// A lookup or a connect is running.
    Wait,
    Unreachable(Unreachable),
}

impl Balancer {
    pub(super) fn new(neighbor: &'static str, connect_timeout: Duration, tasks: Tasks) -> Self {
        Self {
            neighbor,
            connect_timeout,
            tasks,
            addresses: Mutex::new(Addresses::Unresolved),
            changed: watch::Sender::new(()),
            lookup_wanted: Arc::new(Notify::new()),
            is_lookup_failing: AtomicBool::new(false),
        }
    }

    /// Returns an open connection, to `avoid` only if there is no other. Waits while a lookup or a connect is running; the
    /// caller bounds the wait.
    pub(super) async fn pick(self: &Arc<Self>, avoid: Option<SocketAddr>) -> Result<Picked, Unreachable> {
        // Without a subscription in the common case.
        if let PickResult::Found(picked) = self.try_pick(avoid) {
            return Ok(picked);
        }
        let mut changed = self.changed.subscribe();
        loop {
            match self.try_pick(avoid) {
                PickResult::Found(picked) => return Ok(picked),
                PickResult::Unreachable(unreachable) => return Err(unreachable),
                // Cannot fail: the sender is in `self`.
                PickResult::Wait => drop(changed.changed().await),
            }
        }
    }

    /// Replaces the addresses. Addresses that stay keep their connections; running calls on removed ones finish.
    pub(super) fn set_addresses(&self, addresses: &[SocketAddr]) {
        if self.is_lookup_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(neighbor = self.neighbor, "address lookup succeeds again");
        }
        let mut known = self.lock();
        let old: HashMap<SocketAddr, Arc<Backend>> = match &*known {
            Addresses::Resolved(backends) => {
                backends.iter().map(|old| (old.address(), Arc::clone(old))).collect()
            }
            Addresses::Unresolved | Addresses::LookupFailed(_) => HashMap::new(),
        };
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.len() > ADDRESSES_MAX {
            tracing::warn!(
                neighbor = self.neighbor,
                addresses = wanted.len(),
                "too many addresses, ignoring those above the maximum"
            );
            wanted.truncate(ADDRESSES_MAX);
        }
        let is_same = wanted.len() == old.len() && wanted.iter().all(|address| old.contains_key(address));
        if is_same {
            return;
        }
        tracing::info!(neighbor = self.neighbor, addresses = ?wanted, "neighbor's addresses changed");
        let backend = |address: SocketAddr| {
            old.get(&address).map_or_else(|| Arc::new(Backend::new(address)), Arc::clone)
        };
        *known = Addresses::Resolved(wanted.into_iter().map(backend).collect());
        drop(known);
        self.changed.send_replace(());
    }

    /// Records a failed lookup and keeps the known addresses. Always returns false, the caller's `is_found`.
    pub(super) fn set_lookup_failed(&self, problem: &str) -> bool {
        // Logged once per outage: failed lookups repeat every 500 ms.
        if !self.is_lookup_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                neighbor = self.neighbor,
                problem,
                "address lookup failed, keeping known addresses"
            );
        }
        let mut known = self.lock();
        if !matches!(*known, Addresses::Resolved(_)) {
            *known = Addresses::LookupFailed(problem.to_owned());
            drop(known);
            self.changed.send_replace(());
        }
        false
    }

    pub(super) fn lookup_wanted(&self) -> Arc<Notify> {
        Arc::clone(&self.lookup_wanted)
    }

    /// Returns true if another address has an open connection and is not ejected.
    pub(super) fn has_other(&self, address: SocketAddr) -> bool {
        let Addresses::Resolved(backends) = self.lock().clone() else { return false };
        let now = Instant::now();
        let is_fit = |availability: Availability| {
            matches!(availability, Availability::Open { is_preferred: true, .. })
        };
        backends
            .iter()
            .any(|backend| backend.address() != address && is_fit(backend.availability(now, false)))
    }

    fn try_pick(self: &Arc<Self>, avoid: Option<SocketAddr>) -> PickResult {
        let known = self.lock().clone();
        match known {
            Addresses::Unresolved => PickResult::Wait,
            Addresses::LookupFailed(problem) => {
                PickResult::Unreachable(Unreachable::Unknown { neighbor: self.neighbor, problem })
            }
            Addresses::Resolved(backends) => {
                let now = Instant::now();
                self.sample(&backends, now, avoid)
                    .map_or_else(|| self.scan(&backends, now, avoid), PickResult::Found)
            }
        }
    }

    /// Picks the less busy of two random addresses, if one is usable. Its cost does not grow with their number.
    fn sample(
        self: &Arc<Self>,
        backends: &[Arc<Backend>],
        now: Instant,
        avoid: Option<SocketAddr>,
    ) -> Option<Picked> {
        let mut random = rand::rng();
        let first = random.random_range(0..backends.len().max(1));
        let second = match backends.len() {
            0 | 1 => None,
            // A random index among the others, shifted past the first.
            several => {
                Some(random.random_range(0..several - 1)).map(|other| other + usize::from(other >= first))
            }
        };
        let pair = [Some(first), second].into_iter().flatten().filter_map(|index| backends.get(index));
        let mut best: Option<(&Arc<Backend>, Sender)> = None;
        for backend in pair {
            match backend.availability(now, false) {
                Availability::Open { sender, is_preferred: true } if avoid != Some(backend.address()) => {
                    let is_better = best.as_ref().is_none_or(|(best, _)| backend.calls() < best.calls());
                    if is_better {
                        best = Some((backend, sender));
                    }
                }
                // Opened for later calls.
                Availability::Idle => self.open(backend),
                Availability::Open { .. } | Availability::Connecting | Availability::Down => {}
            }
        }
        best.map(|(backend, sender)| picked(backend, sender))
    }

    /// Checks every address and prefers usable ones, then less busy ones.
    fn scan(
        self: &Arc<Self>,
        backends: &[Arc<Backend>],
        now: Instant,
        avoid: Option<SocketAddr>,
    ) -> PickResult {
        let are_all_down = backends.iter().all(|backend| backend.is_down());
        let mut best: Option<(bool, usize, &Arc<Backend>, Sender)> = None;
        let mut is_connecting = false;
        for backend in backends {
            match backend.availability(now, are_all_down) {
                Availability::Open { sender, is_preferred } => {
                    let is_unfit = !is_preferred || avoid == Some(backend.address());
                    let rank = (is_unfit, backend.calls());
                    if best.as_ref().is_none_or(|(unfit, calls, ..)| rank < (*unfit, *calls)) {
                        best = Some((rank.0, rank.1, backend, sender));
                    }
                }
                Availability::Idle => {
                    self.open(backend);
                    is_connecting = true;
                }
                Availability::Connecting => is_connecting = true,
                Availability::Down => {}
            }
        }
        match best {
            Some((_, _, backend, sender)) => PickResult::Found(picked(backend, sender)),
            None if is_connecting => PickResult::Wait,
            None => PickResult::Unreachable(Unreachable::Down {
                neighbor: self.neighbor,
                addresses: backends.len(),
            }),
        }
    }

    /// Opens a connection in the background, unless another call does so already.
    fn open(self: &Arc<Self>, backend: &Arc<Backend>) {
        if !backend.begin_connect() {
            return;
        }
        let (balancer, backend) = (Arc::clone(self), Arc::clone(backend));
        self.tasks.spawn("client-connect", async move {
            let address = backend.address();
            let result = connect(address, balancer.connect_timeout).await;
            if let Err(error) = &result {
                tracing::info!(neighbor = balancer.neighbor, %address, error = %Chain(error), "failed to connect to a neighbor, retrying");
                // The instance may have a new address.
                balancer.lookup_wanted.notify_one();
            }
            backend.end_connect(result);
            balancer.changed.send_replace(());
        });
    }

    fn lock(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock()
    }
}

fn picked(backend: &Arc<Backend>, sender: Sender) -> Picked {
    Picked { backend: Arc::clone(backend), sender, in_flight: backend.begin_call() }
}
