//! What in Redis did not answer a moment ago: for a moment nobody waits for it again. Else everybody would wait as long as
//! the first one did, as long as a node is away.

use std::{
    collections::HashMap,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use onsale_kit::deadline::Deadline;
use onsale_storage::redis::{Command, Error, FromRedisValue, Redis};
use tokio::time::Instant;

/// What Redis may cost a call before it does without: the truth is in Postgres.
const PATIENCE: Duration = Duration::from_millis(500);

/// How long what did not answer is left alone.
const REST: Duration = Duration::from_secs(1);

/// Remembered at a time; beyond, all are forgotten.
const KEPT_MAX: usize = 10_000;

/// Runs a command with little patience.
pub(crate) async fn quick<T: FromRedisValue>(redis: &Redis, command: Command) -> Result<T, Error> {
    Deadline::after(PATIENCE).scope(redis.run(command)).await
}

/// What is away, by a name of what lies together.
#[derive(Debug)]
pub(crate) struct Away<K> {
    until: Arc<Mutex<HashMap<K, Instant>>>,
}

impl<K> Clone for Away<K> {
    fn clone(&self) -> Self {
        Self { until: Arc::clone(&self.until) }
    }
}

impl<K> Default for Away<K> {
    fn default() -> Self {
        Self { until: Arc::default() }
    }
}

impl<K: Copy + Eq + Hash> Away<K> {
    /// Does `work` with little patience, and with none while `key` is left alone.
    pub(crate) async fn ask<T>(
        &self,
        key: K,
        command: &'static str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if self.is_away(key) {
            return Err(Error::Deadline { command });
        }
        let answer = Deadline::after(PATIENCE).scope(work).await;
        if matches!(answer, Err(Error::Deadline { .. } | Error::Unavailable { .. } | Error::Unknown { .. })) {
            self.note(key);
        }
        answer
    }

    fn is_away(&self, key: K) -> bool {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match until.get(&key) {
            Some(end) if *end > Instant::now() => true,
            Some(_) => {
                until.remove(&key);
                false
            }
            None => false,
        }
    }

    fn note(&self, key: K) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        if until.len() >= KEPT_MAX {
            until.clear();
        }
        until.insert(key, Instant::now() + REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_costs_the_first_his_patience_and_the_next_nothing() {
        let away = Away::default();
        let silent = || std::future::pending::<Result<(), Error>>();
        let begin = Instant::now();
        for _ in 0..100 {
            let bounded = Deadline::after(PATIENCE);
            let work =
                async { bounded.bound(silent()).await.unwrap_or(Err(Error::Deadline { command: "x" })) };
            assert!(away.ask(7, "x", work).await.is_err());
        }
        assert_eq!(begin.elapsed(), PATIENCE);
        // What lies elsewhere is asked, and so is this one after a rest.
        assert!(away.ask(8, "x", async { Ok(()) }).await.is_ok());
        tokio::time::advance(REST).await;
        assert!(away.ask(7, "x", async { Ok(()) }).await.is_ok());
    }
}
