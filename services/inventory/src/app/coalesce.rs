//! Lets callers that need the same read share it: a thousand who find a pool empty ask Postgres once or twice, not a
//! thousand times. Nobody gets an answer from before they asked.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::time::Instant;

/// The last answer, and when the work for it began.
type Last<V> = tokio::sync::Mutex<Option<(Instant, V)>>;

/// Work that is done once for all who ask for it at the same time.
#[derive(Debug)]
pub(super) struct Coalesce<K, V> {
    entries: Mutex<HashMap<K, Arc<Last<V>>>>,
}

/// One who asks. The last to leave, with or without an answer, leaves nothing behind: whoever comes next would not take it.
struct Asking<'a, K: Copy + Eq + Hash, V> {
    all: &'a Coalesce<K, V>,
    key: K,
    entry: Arc<Last<V>>,
}

impl<K: Copy + Eq + Hash, V> Drop for Asking<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.all.lock();
        // One is the map's, one is ours.
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

impl<K, V> Coalesce<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Last<V>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Copy + Eq + Hash, V: Clone> Coalesce<K, V> {
    /// Does `work`, or takes the answer of another's that began after this call.
    pub(super) async fn run<E>(&self, key: K, work: impl Future<Output = Result<V, E>>) -> Result<V, E> {
        let asked = Instant::now();
        let entry = Arc::clone(self.lock().entry(key).or_default());
        let asking = Asking { all: self, key, entry };
        Self::join(&asking.entry, asked, work).await
    }

    async fn join<E>(
        entry: &Last<V>,
        asked: Instant,
        work: impl Future<Output = Result<V, E>>,
    ) -> Result<V, E> {
        let mut last = entry.lock().await;
        if let Some((begun, value)) = &*last
            && *begun > asked
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
    async fn callers_share_work_but_never_work_that_began_before_they_asked() {
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
                let answer = coalesce.run(7, work).await.unwrap();
                assert!(answer > before, "an answer from before the question");
            }
        };
        join_all((0..100).map(|index| ask(index / 10))).await;
        assert!(begun.load(Ordering::SeqCst) <= 3, "{begun:?}");
        assert!(coalesce.lock().is_empty(), "nothing is kept for nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_nothing_behind() {
        let coalesce: Coalesce<u8, u32> = Coalesce::default();
        let work = std::future::pending::<Result<u32, Infallible>>();
        tokio::time::timeout(Duration::from_secs(1), coalesce.run(7, work)).await.unwrap_err();
        assert!(coalesce.lock().is_empty());
    }
}
