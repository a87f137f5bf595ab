//! How often one node is called.
//!
//! The client begins its look at the topology anew the moment it has failed (redis 1.8, `poll_recover`): with every node
//! refusing, that loop takes a processor for as long as Redis is away. The one step of it that is ours is how a node's
//! name becomes an address, so there it waits.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use parking_lot::Mutex;
use redis::{RedisError, RedisFuture, io::AsyncDNSResolver};
use tokio::time::{Instant, sleep_until};

/// From call to call, when they do not end.
const SLOT_INTERVAL: Duration = Duration::from_millis(50);

/// How far calls may run ahead of their steps: eight at once, more than the pool that start together and a failover need.
const BURST_SPAN: Duration = SLOT_INTERVAL.saturating_mul(7);

/// The addresses of nodes, at the pace at which a node may be called.
#[derive(Default)]
pub(super) struct ReconnectLimiter {
    /// When each node's steps are made up for; forgotten once that has passed.
    nodes: Mutex<HashMap<(String, u16), Instant>>,
}

impl ReconnectLimiter {
    /// When the node may be called; counts as a call.
    fn reserve_slot(&self, host: &str, port: u16) -> Instant {
        let now = Instant::now();
        let mut nodes = self.nodes.lock();
        nodes.retain(|_, next_slot| *next_slot > now);
        let next_slot = nodes.entry((host.to_owned(), port)).or_insert(now);
        let turn = next_slot.checked_sub(BURST_SPAN).map_or(now, |turn| turn.max(now));
        *next_slot += SLOT_INTERVAL;
        turn
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
    async fn a_few_calls_go_at_once_and_the_others_step_by_step() {
        let limiter = ReconnectLimiter::default();
        let begin = Instant::now();
        let turns: Vec<Duration> = (0..10).map(|_| limiter.reserve_slot("a", 1) - begin).collect();
        assert_eq!(turns[..8], [Duration::ZERO; 8]);
        assert_eq!(turns[8..], [SLOT_INTERVAL, SLOT_INTERVAL * 2]);
        assert_eq!(limiter.reserve_slot("a", 2), begin, "another node waits for nobody");
        sleep_until(begin + SLOT_INTERVAL * 10).await;
        assert_eq!(limiter.reserve_slot("a", 1), Instant::now(), "all is made up for");
        assert_eq!(limiter.nodes.lock().len(), 1, "what is made up for is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_without_an_end_keep_the_pace() {
        let limiter = ReconnectLimiter::default();
        let begin = Instant::now();
        for _ in 0..100 {
            let _addresses = limiter.resolve("127.0.0.1", 1).await.unwrap();
        }
        assert_eq!(begin.elapsed(), SLOT_INTERVAL * 92);
    }
}
