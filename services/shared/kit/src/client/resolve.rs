//! Lookup of a neighbor's addresses, repeated over time.

use std::{future::Future, io, net::SocketAddr, sync::Weak, time::Duration};

use tokio_util::sync::CancellationToken;

use super::balance::Balancer;
use crate::backoff::jittered;

/// Time limit of one lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Wait before the next lookup after a failed one, or after an address became unreachable.
const EARLY_LOOKUP_DELAY: Duration = Duration::from_millis(500);

/// Shortest interval between lookups, used for shorter settings: zero would repeat them without a pause.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// A source of a neighbor's addresses.
pub trait Resolve: Send + Sync + 'static {
    /// Returns all current addresses. An empty list counts as a failure.
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// Accepts a function, for tests and for address lists outside of DNS.
impl<F, A> Resolve for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = io::Result<Vec<SocketAddr>>> + Send,
{
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        self()
    }
}

/// Uses the system's resolver. In Kubernetes, the name of a headless service resolves to all its pods.
#[derive(Clone, Debug)]
pub(super) struct SystemResolver {
    host: String,
    port: u16,
}

impl SystemResolver {
    pub(super) fn new(host: &str, port: u16) -> Self {
        // The system's resolver accepts a literal IPv6 address only without brackets.
        Self { host: host.trim_matches(['[', ']']).to_owned(), port }
    }
}

impl Resolve for SystemResolver {
    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

/// Repeats lookups and updates the balancer until shutdown or until the channel is dropped. Failed lookups keep the last
/// addresses, so that an outage of DNS does not become an outage of calls. Not a `Worker`: a failed lookup is repeated
/// sooner than a successful one.
pub(super) async fn keep_resolving<R: Resolve>(
    balancer: Weak<Balancer>,
    resolver: R,
    interval: Duration,
    shutdown: CancellationToken,
) {
    let interval = interval.max(INTERVAL_MIN);
    loop {
        let found = tokio::select! {
            () = shutdown.cancelled() => return,
            found = tokio::time::timeout(LOOKUP_TIMEOUT, resolver.resolve()) => found,
        };
        let Some(balancer) = balancer.upgrade() else { return };
        let is_found = match found {
            Ok(Ok(addresses)) if !addresses.is_empty() => {
                balancer.set_addresses(&addresses);
                true
            }
            Ok(Ok(_empty)) => balancer.set_lookup_failed("the name has no address"),
            Ok(Err(error)) => balancer.set_lookup_failed(&error.to_string()),
            Err(_elapsed) => balancer.set_lookup_failed("the lookup took too long"),
        };
        let pause = if is_found { jittered(interval, 75..=125) } else { EARLY_LOOKUP_DELAY.min(interval) };
        let lookup_wanted = balancer.lookup_wanted();
        // Dropped before the pause, so that this loop ends with the last clone of the channel.
        drop(balancer);
        let early = async {
            lookup_wanted.notified().await;
            // One lookup for many addresses that fail together.
            tokio::time::sleep(EARLY_LOOKUP_DELAY.min(interval)).await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = early => {}
        }
    }
}
