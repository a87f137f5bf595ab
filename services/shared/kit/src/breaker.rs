//! Circuit breaker: during an outage of a store, callers fail immediately instead of each waiting for the timeout.
//!
//! A key names a part that fails as a whole, for example the keys of one queue's line. After a call on a key gets no
//! response, further calls on it are refused for a pause. Then one trial call is let through, and the others stay refused
//! until its outcome is known. A failure does not count if the caller's own deadline was shorter than the timeout, because
//! it shows nothing about the store.

use std::{
    fmt,
    future::Future,
    hash::Hash,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use tokio::time::Instant;

use crate::deadline::Deadline;

/// Maximum number of open keys. Beyond it the oldest are evicted, which costs their next callers one timeout.
const KEYS_MAX: usize = 10_000;

/// A breaker for all keys of one store.
pub struct Breaker<K> {
    timeout: Duration,
    open_for: Duration,
    /// The keys that are not closed.
    open: Mutex<Cache<K, Open>>,
    trials: AtomicU64,
}

/// A key that failed.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Calls are refused before this time.
    until: Instant,
    /// The running trial, so that the late outcome of an earlier trial is ignored.
    trial: Option<u64>,
}

/// The cause of a call without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection<E> {
    /// The breaker is open: the call was not made.
    Open,
    /// The call was made and failed.
    Failed(E),
}

/// Permission to make one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permit {
    /// The key is closed; every caller gets this.
    Closed,
    /// One call after the pause, which finds out whether the store responds again.
    Trial(u64),
}

impl<K: Clone + Eq + Hash> Breaker<K> {
    /// Creates a breaker that gives each call `timeout` and refuses calls for `open_for` after a failure.
    #[must_use]
    pub fn new(timeout: Duration, open_for: Duration) -> Self {
        Self { timeout, open_for, open: Mutex::new(Cache::new(KEYS_MAX)), trials: AtomicU64::new(0) }
    }

    /// Runs `work` under a deadline of the timeout (or the caller's, if that is earlier), unless `key` is open.
    /// `is_outage` tells a store that does not respond from one that responds with an error.
    pub async fn call<T, E>(
        &self,
        key: K,
        is_outage: impl FnOnce(&E) -> bool,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Rejection<E>> {
        let permit = self.acquire(&key).ok_or(Rejection::Open)?;
        let deadline = Deadline::after(self.timeout);
        let is_callers_own = Deadline::current().is_some_and(|caller| caller < deadline);
        let result = deadline.scope(work).await;
        match result.as_ref().is_err_and(is_outage) {
            true if is_callers_own => self.end_without_verdict(&key, permit),
            true => self.trip(key),
            false => self.end_with_answer(&key, permit),
        }
        result.map_err(Rejection::Failed)
    }

    /// Returns true while calls on `key` are refused.
    #[must_use]
    pub fn is_open(&self, key: &K) -> bool {
        self.open.lock().peek(key).is_some_and(|open| Instant::now() < open.until)
    }

    fn acquire(&self, key: &K) -> Option<Permit> {
        let mut keys = self.open.lock();
        if keys.is_empty() {
            return Some(Permit::Closed);
        }
        let Some(mut open) = keys.get_mut(key) else { return Some(Permit::Closed) };
        let now = Instant::now();
        if now < open.until {
            return None;
        }
        // Refuses other calls for one timeout, after which another trial replaces one whose caller gave up.
        open.until = now.checked_add(self.timeout)?;
        let trial = self.trials.fetch_add(1, Ordering::Relaxed);
        open.trial = Some(trial);
        Some(Permit::Trial(trial))
    }

    /// Opens `key`, or keeps it open, from now on.
    fn trip(&self, key: K) {
        if let Some(until) = Instant::now().checked_add(self.open_for) {
            self.open.lock().insert(key, Open { until, trial: None });
        }
    }

    /// Closes `key` if this call was its trial.
    fn end_with_answer(&self, key: &K, permit: Permit) {
        if self.is_current_trial(key, permit) {
            self.open.lock().remove(key);
        }
    }

    /// Allows the next trial immediately if this call was the trial: its short deadline showed nothing.
    fn end_without_verdict(&self, key: &K, permit: Permit) {
        if self.is_current_trial(key, permit)
            && let Some(mut open) = self.open.lock().get_mut(key)
        {
            open.until = Instant::now();
        }
    }

    fn is_current_trial(&self, key: &K, permit: Permit) -> bool {
        match permit {
            Permit::Closed => false,
            Permit::Trial(trial) => self.open.lock().peek(key).is_some_and(|open| open.trial == Some(trial)),
        }
    }
}

impl<K> fmt::Debug for Breaker<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, open_for, .. } = self;
        formatter
            .debug_struct("Breaker")
            .field("timeout", timeout)
            .field("open_for", open_for)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(500);
    const OPEN_FOR: Duration = Duration::from_secs(1);

    #[derive(Debug, PartialEq, Eq)]
    enum Failure {
        NoAnswer,
        Refused,
    }

    type Outcome = Result<(), Rejection<Failure>>;

    fn breaker() -> Breaker<u32> {
        Breaker::new(TIMEOUT, OPEN_FOR)
    }

    async fn call(breaker: &Breaker<u32>, key: u32, result: Result<(), Failure>) -> Outcome {
        breaker.call(key, |failure| *failure == Failure::NoAnswer, ready(result)).await
    }

    /// Makes a call on a store that never responds. It ends at the deadline of its scope.
    async fn silent(breaker: &Breaker<u32>, key: u32) -> Outcome {
        let work = async {
            let deadline = Deadline::current().expect("the breaker sets one");
            deadline.bound(pending::<()>()).await.map_err(|_passed| Failure::NoAnswer)
        };
        breaker.call(key, |failure| *failure == Failure::NoAnswer, work).await
    }

    #[tokio::test(start_paused = true)]
    async fn open_breaker_fails_fast_after_the_first_timeout() {
        let breaker = breaker();
        let begin = Instant::now();
        assert_eq!(silent(&breaker, 7).await, Err(Rejection::Failed(Failure::NoAnswer)));
        for _ in 0..100 {
            assert_eq!(silent(&breaker, 7).await, Err(Rejection::Open));
        }
        assert_eq!(begin.elapsed(), TIMEOUT);
        assert!(breaker.is_open(&7));
        assert_eq!(call(&breaker, 8, Ok(())).await, Ok(()), "another key is not affected");
    }

    #[tokio::test(start_paused = true)]
    async fn one_trial_follows_the_pause_and_the_others_stay_refused() {
        let breaker = breaker();
        let _ = call(&breaker, 7, Err(Failure::NoAnswer)).await;
        tokio::time::advance(OPEN_FOR).await;
        let mut trial = Box::pin(silent(&breaker, 7));
        assert!(futures_util::poll!(&mut trial).is_pending());
        assert_eq!(call(&breaker, 7, Ok(())).await, Err(Rejection::Open));
        assert_eq!(trial.await, Err(Rejection::Failed(Failure::NoAnswer)));
        assert_eq!(
            call(&breaker, 7, Ok(())).await,
            Err(Rejection::Open),
            "the failed trial begins another pause"
        );
        tokio::time::advance(OPEN_FOR).await;
        assert_eq!(call(&breaker, 7, Ok(())).await, Ok(()));
        assert_eq!(call(&breaker, 7, Ok(())).await, Ok(()), "a trial that succeeds closes the breaker");
        assert!(!breaker.is_open(&7));
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_trial_is_replaced_after_one_timeout() {
        let breaker = breaker();
        let _ = call(&breaker, 7, Err(Failure::NoAnswer)).await;
        tokio::time::advance(OPEN_FOR).await;
        let mut trial = Box::pin(silent(&breaker, 7));
        assert!(futures_util::poll!(&mut trial).is_pending());
        drop(trial);
        assert_eq!(call(&breaker, 7, Ok(())).await, Err(Rejection::Open));
        tokio::time::advance(TIMEOUT).await;
        assert_eq!(call(&breaker, 7, Ok(())).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_under_a_shorter_deadline_of_the_caller_does_not_count() {
        let breaker = breaker();
        let short = || Deadline::after(TIMEOUT / 2);
        let outcome = short().scope(silent(&breaker, 7)).await;
        assert_eq!(outcome, Err(Rejection::Failed(Failure::NoAnswer)));
        assert!(!breaker.is_open(&7));
        // As a trial, it neither closes the breaker nor keeps the next caller from trying.
        let _ = call(&breaker, 7, Err(Failure::NoAnswer)).await;
        tokio::time::advance(OPEN_FOR).await;
        let _ = short().scope(silent(&breaker, 7)).await;
        assert_eq!(silent(&breaker, 7).await, Err(Rejection::Failed(Failure::NoAnswer)));
        assert!(breaker.is_open(&7));
    }

    #[tokio::test(start_paused = true)]
    async fn error_answers_keep_the_breaker_closed() {
        let breaker = breaker();
        assert_eq!(call(&breaker, 7, Err(Failure::Refused)).await, Err(Rejection::Failed(Failure::Refused)));
        assert_eq!(call(&breaker, 7, Ok(())).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn late_failure_of_an_older_call_opens_the_breaker_again() {
        let breaker = breaker();
        let mut slow = Box::pin(silent(&breaker, 7));
        assert!(futures_util::poll!(&mut slow).is_pending());
        assert_eq!(call(&breaker, 7, Ok(())).await, Ok(()));
        assert_eq!(slow.await, Err(Rejection::Failed(Failure::NoAnswer)));
        assert!(breaker.is_open(&7));
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_open_keys_is_bounded() {
        let breaker = breaker();
        for key in 0..30_000 {
            let _ = call(&breaker, key, Err(Failure::NoAnswer)).await;
        }
        assert!(breaker.open.lock().len() <= KEYS_MAX);
    }
}
