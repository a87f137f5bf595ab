//! Limits how often the client connects to one node.
//!
//! The driver restarts its topology refresh immediately after a failure (redis 1.8, `poll_recover`). While every node
//! refuses connections, that loop would use a full core. The only step under our control is the DNS resolution of a
//! node's address, so this resolver waits there.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use parking_lot::Mutex;
use redis::{RedisError, RedisFuture, io::AsyncDNSResolver};
use tokio::time::{Instant, sleep_until};

/// Interval between two connections to one node, after the burst.
const SLOT_INTERVAL: Duration = Duration::from_millis(50);

/// Span by which connections may run ahead of their slots: 8 at once, more than the pool needs at start and in a
/// failover.
const BURST_SPAN: Duration = SLOT_INTERVAL.saturating_mul(7);

/// Resolver that waits for the node's next slot before it resolves the address.
#[derive(Default)]
pub(super) struct ReconnectLimiter {
    /// Time up to which each node's slots are reserved; a slot may be used up to [`BURST_SPAN`] early. Entries in the
    /// past are removed.
    nodes: Mutex<HashMap<(String, u16), Instant>>,
}

impl ReconnectLimiter {
    /// Reserves the next connection slot of the node and returns the time at which it may be used.
    fn reserve_slot(&self, host: &str, port: u16) -> Instant {
        let now = Instant::now();
        let mut nodes = self.nodes.lock();
        nodes.retain(|_, reserved_until| *reserved_until > now);
        let reserved_until = nodes.entry((host.to_owned(), port)).or_insert(now);
        let slot = reserved_until.checked_sub(BURST_SPAN).map_or(now, |slot| slot.max(now));
        *reserved_until += SLOT_INTERVAL;
        slot
    }
}

impl AsyncDNSResolver for ReconnectLimiter {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        host: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            sleep_until(self.reserve_slot(host, port)).await;
            let addresses = tokio::net::lookup_host((host, port)).await.map_err(RedisError::from)?;
            let addresses: Vec<SocketAddr> = addresses.collect();
            let addresses: Box<dyn Iterator<Item = SocketAddr> + Send> = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn eight_connections_start_at_once_and_others_every_50_ms() {
        let limiter = ReconnectLimiter::default();
        let begin = Instant::now();
        let slots: Vec<Duration> = (0..10).map(|_| limiter.reserve_slot("a", 1) - begin).collect();
        assert_eq!(slots[..8], [Duration::ZERO; 8]);
        assert_eq!(slots[8..], [SLOT_INTERVAL, SLOT_INTERVAL * 2]);
        assert_eq!(limiter.reserve_slot("a", 2), begin, "nodes do not share slots");
        sleep_until(begin + SLOT_INTERVAL * 10).await;
        assert_eq!(limiter.reserve_slot("a", 1), Instant::now(), "all slots have passed");
        assert_eq!(limiter.nodes.lock().len(), 1, "past entries are removed");
    }

    #[tokio::test(start_paused = true)]
    async fn endless_connections_keep_the_interval() {
        let limiter = ReconnectLimiter::default();
        let begin = Instant::now();
        for _ in 0..100 {
            let _addresses = limiter.resolve("127.0.0.1", 1).await.unwrap();
        }
        assert_eq!(begin.elapsed(), SLOT_INTERVAL * 92);
    }
}
