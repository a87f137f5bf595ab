//! Which addresses a name stands for, followed over time.

use std::{future::Future, io, net::SocketAddr, sync::Weak, time::Duration};

use tokio_util::sync::CancellationToken;

use super::balance::Balancer;
use crate::backoff::jittered;

/// One lookup may take this long.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// After a failed lookup, and when an address stops answering, the next lookup comes this soon instead of at its time.
const EARLY_LOOKUP_DELAY: Duration = Duration::from_millis(500);

/// A shorter interval counts as this: zero would look up without a pause.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Finds the addresses of a neighbour.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses it has now. An empty answer counts as a failure.
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// For tests and for lists that do not come from DNS.
impl<F, A> Resolve for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = io::Result<Vec<SocketAddr>>> + Send,
{
    fn resolve(&self) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        self()
    }
}

/// Asks the system's resolver. In Kubernetes a headless service's name stands for all its pods.
#[derive(Clone, Debug)]
pub(super) struct SystemResolver {
    host: String,
    port: u16,
}

impl SystemResolver {
    pub(super) fn new(host: &str, port: u16) -> Self {
        // The system's resolver knows no brackets around a literal IPv6 address.
        Self { host: host.trim_matches(['[', ']']).to_owned(), port }
    }
}

impl Resolve for SystemResolver {
    async fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect())
    }
}

/// Keeps the balancer's addresses up to date until the process shuts down or the channel is gone. When lookups fail,
/// the last known addresses stay: an outage of the name service must not become one of ours. Not a `Worker`: a failed
/// lookup is repeated sooner than a good one.
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
        // Not kept through the pause: the last clone of the channel must be able to end this.
        drop(balancer);
        let early = async {
            lookup_wanted.notified().await;
            // Many addresses fail together: one lookup serves them all.
            tokio::time::sleep(EARLY_LOOKUP_DELAY.min(interval)).await;
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = early => {}
        }
    }
}
