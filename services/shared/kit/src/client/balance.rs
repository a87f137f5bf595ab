//! Spreads calls over a neighbour's addresses: of two random ones the less busy.
//!
//! Instead of tonic's balancer, which counts an address that cannot be reached as ready and lets a call find out. Here
//! connections are opened in the background as soon as there are calls, and a call goes only to an open one: as long as
//! any address lives, no call waits for a dead one.

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

/// More addresses than this are ignored: enough to spread load, few enough to keep a connection to each.
const ADDRESSES_MAX: usize = 64;

/// No address of the neighbour can be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreachable {
    #[error("failed to look up the address of {neighbour}: {problem}")]
    Unknown { neighbour: &'static str, problem: String },
    #[error("failed to connect to any of the {addresses} addresses of {neighbour}")]
    Down { neighbour: &'static str, addresses: usize },
}

pub(super) struct Balancer {
    neighbour: &'static str,
    connect_timeout: Duration,
    tasks: Tasks,
    addresses: Mutex<Addresses>,
    /// Ticks whenever something changed that a waiting call should look at.
    changed: watch::Sender<()>,
    /// Asks for a lookup before its time.
    lookup_wanted: Arc<Notify>,
    is_lookup_failing: AtomicBool,
}

#[derive(Clone)]
enum Addresses {
    /// Not looked up yet.
    Unresolved,
    /// The lookup failed, and none has succeeded so far.
    LookupFailed(String),
    Resolved(Arc<[Arc<Backend>]>),
}

/// Where a call goes.
pub(super) struct Picked {
    pub(super) backend: Arc<Backend>,
    pub(super) sender: Sender,
    pub(super) in_flight: InFlight,
}

enum PickResult {
    Found(Picked),
    /// A lookup or a connection is under way.
    Wait,
    Unreachable(Unreachable),
}

impl Balancer {
    pub(super) fn new(neighbour: &'static str, connect_timeout: Duration, tasks: Tasks) -> Self {
        Self {
            neighbour,
            connect_timeout,
            tasks,
            addresses: Mutex::new(Addresses::Unresolved),
            changed: watch::Sender::new(()),
            lookup_wanted: Arc::new(Notify::new()),
            is_lookup_failing: AtomicBool::new(false),
        }
    }

    /// An address with an open connection, `avoid` only when there is no other. Waits while a lookup or a connection is
    /// under way; the caller bounds it.
    pub(super) async fn pick(self: &Arc<Self>, avoid: Option<SocketAddr>) -> Result<Picked, Unreachable> {
        // The usual case needs no subscription.
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

    /// Takes over a new list; addresses that stay keep their connections, those that left let their calls end.
    pub(super) fn set_addresses(&self, addresses: &[SocketAddr]) {
        if self.is_lookup_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(neighbour = self.neighbour, "addresses are found again");
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
                neighbour = self.neighbour,
                addresses = wanted.len(),
                "too many addresses, using some"
            );
            wanted.truncate(ADDRESSES_MAX);
        }
        let is_same = wanted.len() == old.len() && wanted.iter().all(|address| old.contains_key(address));
        if is_same {
            return;
        }
        tracing::info!(neighbour = self.neighbour, addresses = ?wanted, "addresses changed");
        let backend = |address: SocketAddr| {
            old.get(&address).map_or_else(|| Arc::new(Backend::new(address)), Arc::clone)
        };
        *known = Addresses::Resolved(wanted.into_iter().map(backend).collect());
        drop(known);
        self.changed.send_replace(());
    }

    /// Keeps the known addresses. Answers false, for the caller's convenience.
    pub(super) fn set_lookup_failed(&self, problem: &str) -> bool {
        // Said once, not twice a second for as long as it lasts.
        if !self.is_lookup_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(neighbour = self.neighbour, problem, "failed to look up addresses");
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

    /// Whether a call could go to another address right now.
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
                PickResult::Unreachable(Unreachable::Unknown { neighbour: self.neighbour, problem })
            }
            Addresses::Resolved(backends) => {
                let now = Instant::now();
                self.sample(&backends, now, avoid)
                    .map_or_else(|| self.scan(&backends, now, avoid), PickResult::Found)
            }
        }
    }

    /// Two random addresses, the less busy of them that is fit. Looks at no others, so that its cost does not grow.
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
            // Any but the first: an index among the others, moved past it.
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
                // So that it is there for later calls.
                Availability::Idle => self.open(backend),
                Availability::Open { .. } | Availability::Connecting | Availability::Down => {}
            }
        }
        best.map(|(backend, sender)| picked(backend, sender))
    }

    /// Looks at every address: fit ones before unfit ones, the less busy before the busier.
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
                neighbour: self.neighbour,
                addresses: backends.len(),
            }),
        }
    }

    /// Opens a connection in the background, unless somebody does already.
    fn open(self: &Arc<Self>, backend: &Arc<Backend>) {
        if !backend.begin_connect() {
            return;
        }
        let (balancer, backend) = (Arc::clone(self), Arc::clone(backend));
        self.tasks.spawn("client-connect", async move {
            let address = backend.address();
            let result = connect(address, balancer.connect_timeout).await;
            if let Err(error) = &result {
                tracing::info!(neighbour = balancer.neighbour, %address, error = %Chain(error), "address is down");
                // It may have moved.
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
