//! Lets callers that need the same read share it: a thousand callers that find a pool empty read Postgres once or twice, not a
//! thousand times. No caller gets a result of work that began before its call.

use std::{collections::HashMap, future::Future, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The last result and the time at which its work began.
type Last<V> = tokio::sync::Mutex<Option<(Instant, V)>>;

/// Work that runs once for all concurrent callers with the same key.
#[derive(Debug)]
pub(super) struct Coalesce<K, V> {
    entries: Mutex<HashMap<K, Arc<Last<V>>>>,
}

/// One caller's share of an entry. The last caller to leave, with or without a result, removes the entry: later callers could
/// not use its result.
struct Caller<'a, K: Copy + Eq + Hash, V> {
    all: &'a Coalesce<K, V>,
    key: K,
    entry: Arc<Last<V>>,
}

impl<K: Copy + Eq + Hash, V> Drop for Caller<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.all.entries.lock();
        // The map has one reference, this caller the other.
        if Arc::strong_count(&self.entry) <= 2 {
            entries.remove(&self.key);
        }
    }
}

impl<K, V> Default for Coalesce<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Coalesce<K, V> {
    /// Runs `work`, or returns the result of another caller's work that began after this call.
    pub(super) async fn run<E>(&self, key: K, work: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let called = Instant::now();
        let entry = Arc::clone(self.entries.lock().entry(key).or_default());
        let caller = Caller { all: self, key, entry };
        Self::join(&caller.entry, called, work).await
    }

    async fn join<E>(
        entry: &Last<V>,
        called: Instant,
        work: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let mut last = entry.lock().await;
        if let Some((begun, value)) = &*last
            && *begun > called
        {
            return Ok(value.clone());
        }
        let begun = Instant::now();
        let value = work.await?;
        *last = Some((begun, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_share_only_work_that_began_after_their_call() {
        let coalesce: Coalesce<u8, u32> = Coalesce::default();
        let begun = AtomicU32::new(0);
        let ask = |after: u64| {
            let (coalesce, begun) = (&coalesce, &begun);
            async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let before = begun.load(Ordering::SeqCst);
                let work = async {
                    let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    Ok::<_, Infallible>(number)
                };
                let result = coalesce.run(7, work).await.unwrap();
                assert!(result > before, "a result from before the call");
            }
        };
        join_all((0..100).map(|index| ask(index / 10))).await;
        assert!(begun.load(Ordering::SeqCst) <= 3, "{begun:?}");
        assert!(coalesce.entries.lock().is_empty(), "no entry is left");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_caller_leaves_no_entry() {
        let coalesce: Coalesce<u8, u32> = Coalesce::default();
        let work = std::future::pending::<Result<u32, Infallible>>();
        tokio::time::timeout(Duration::from_secs(1), coalesce.run(7, work)).await.unwrap_err();
        assert!(coalesce.entries.lock().is_empty());
    }
}
