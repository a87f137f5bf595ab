//! The keys of an issuer that publishes them at a URL: fetched in the background, at intervals and when a token names a
//! key we do not have, and kept while the issuer cannot be reached.
//!
//! One task fetches for everybody; a call only asks it and waits a bounded time. Callers must never decide how often the
//! issuer is asked.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{KeyError, KeyFetchConfig, KeySet};
use crate::{
    backoff::{Backoff, BackoffConfig, jittered},
    error::Chain,
};

/// Calls that may wait for one fetch. Anybody can name a key, and an issuer may be slow: were there no bound, strangers could
/// take all places of the server by waiting.
const WAITING_CALLS_MAX: usize = 256;

/// The published keys of one issuer.
pub(super) struct PublishedKeys {
    issuer: Arc<str>,
    url: String,
    config: KeyFetchConfig,
    state: watch::Sender<State>,
    /// Asks the task to fetch now.
    fetch_wanted: Notify,
    /// A permit for each call that may still wait.
    waiting_calls: Semaphore,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// The last good set.
    keys: Option<Arc<KeySet>>,
    /// When the last attempt ended, good or not.
    attempt_end: Option<Instant>,
}

/// Why keys could not be fetched.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("failed to fetch the keys")]
    Http(#[source] reqwest::Error),
    #[error("the document is longer than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    #[error("the document cannot be used")]
    Document(#[source] KeyError),
}

impl PublishedKeys {
    pub(super) fn new(issuer: Arc<str>, url: &str, config: &KeyFetchConfig) -> Self {
        Self {
            issuer,
            url: url.to_owned(),
            config: config.clone(),
            state: watch::Sender::new(State::default()),
            fetch_wanted: Notify::new(),
            waiting_calls: Semaphore::new(WAITING_CALLS_MAX),
        }
    }

    /// The last good set; none before the first.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.state.borrow().keys.clone()
    }

    /// Has the keys fetched and waits for that, unless they were asked for a moment ago or too many wait already. Whether there
    /// was an attempt.
    pub(super) async fn refresh(&self) -> bool {
        let Ok(_permit) = self.waiting_calls.try_acquire() else { return false };
        let mut state = self.state.subscribe();
        if self.is_too_soon(state.borrow_and_update().attempt_end) {
            return false;
        }
        self.fetch_wanted.notify_one();
        let attempted = tokio::time::timeout(self.config.timeout, state.changed()).await;
        matches!(attempted, Ok(Ok(())))
    }

    /// Fetches until `shutdown`; `changed` is called whenever the keys are other ones. Not a `Worker`: a failed fetch is
    /// repeated sooner than a good one, and hints are limited to one per `interval_min`.
    pub(super) async fn run(self: Arc<Self>, shutdown: CancellationToken, changed: impl Fn()) {
        let mut client = None;
        let mut failures = Backoff::new(self.failures());
        loop {
            let fetched = shutdown.run_until_cancelled(self.fetch(&mut client)).await;
            let Some(fetched) = fetched else { return };
            let next = match fetched {
                Ok(keys) => {
                    failures.reset();
                    if self.store(keys) {
                        changed();
                    }
                    jittered(self.config.interval, 90..=100)
                }
                Err(error) => {
                    tracing::warn!(
                        issuer = &*self.issuer,
                        url = self.url,
                        has_keys = self.current().is_some(),
                        error = %Chain(&error),
                        "failed to fetch an issuer's keys"
                    );
                    failures.next_delay().unwrap_or(self.config.interval).max(self.config.interval_min)
                }
            };
            self.state.send_modify(|state| state.attempt_end = Some(Instant::now()));
            if shutdown.run_until_cancelled(self.pause(next)).await.is_none() {
                return;
            }
        }
    }

    /// Takes the set; whether it differs from the one before.
    fn store(&self, keys: KeySet) -> bool {
        if self.current().is_some_and(|current| *current == keys) {
            return false;
        }
        tracing::info!(
            issuer = &*self.issuer,
            url = self.url,
            keys = keys.len(),
            "an issuer's keys have changed"
        );
        self.state.send_modify(|state| state.keys = Some(Arc::new(keys)));
        true
    }

    /// Waits for `next`, or until somebody needs the keys sooner and may.
    async fn pause(&self, next: Duration) {
        let wanted = async {
            loop {
                self.fetch_wanted.notified().await;
                // A permit may be left over from callers who came while the last attempt was running.
                if !self.is_too_soon(self.state.borrow().attempt_end) {
                    return;
                }
            }
        };
        // Over either way.
        let _ = tokio::time::timeout(next, wanted).await;
    }

    fn is_too_soon(&self, attempt_end: Option<Instant>) -> bool {
        attempt_end.is_some_and(|end| end.elapsed() < self.config.interval_min)
    }

    async fn fetch(&self, client: &mut Option<reqwest::Client>) -> Result<KeySet, FetchError> {
        let client = match client {
            Some(client) => client,
            // Made here and not at start: without the system's certificates it cannot be, and that may pass.
            None => client.insert(self.client().map_err(FetchError::Http)?),
        };
        let response = client.get(&self.url).send().await.and_then(reqwest::Response::error_for_status);
        let mut response = response.map_err(FetchError::Http)?;
        let bytes_max = self.config.document_bytes_max;
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(FetchError::Http)? {
            if document.len().saturating_add(chunk.len()) > bytes_max {
                return Err(FetchError::TooLong { bytes_max });
            }
            document.extend_from_slice(&chunk);
        }
        let document = String::from_utf8(document).map_err(|_| FetchError::Document(KeyError::NotAKeySet))?;
        KeySet::parse(&document).map_err(FetchError::Document)
    }

    fn client(&self) -> reqwest::Result<reqwest::Client> {
        crate::tls::install_provider();
        reqwest::Client::builder()
            .timeout(self.config.timeout)
            // An issuer says where its keys are; somewhere else is not it.
            .redirect(reqwest::redirect::Policy::none())
            // Seldom used, and the far side forgets it sooner than we do.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("onsale-kit/", env!("CARGO_PKG_VERSION")))
            .build()
    }

    fn failures(&self) -> BackoffConfig {
        BackoffConfig {
            initial: self.config.interval_min,
            max: self.config.interval,
            multiplier: 2,
            attempts_max: u32::MAX,
        }
    }
}

impl fmt::Debug for PublishedKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("PublishedKeys").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn only_so_many_calls_wait_for_an_issuer() {
        let config = KeyFetchConfig {
            interval: Duration::from_secs(300),
            interval_min: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            document_bytes_max: 1024,
        };
        // Nobody follows them, as with an issuer that does not answer.
        let keys = PublishedKeys::new("issuer".into(), "http://127.0.0.1:1", &config);
        let mut waiting: Vec<_> = (0..WAITING_CALLS_MAX).map(|_| Box::pin(keys.refresh())).collect();
        for call in &mut waiting {
            assert_eq!(poll!(call), Poll::Pending);
        }
        assert_eq!(poll!(Box::pin(keys.refresh())), Poll::Ready(false), "one too many is answered at once");
        waiting.pop();
        assert_eq!(poll!(Box::pin(keys.refresh())), Poll::Pending, "a place is free again");
    }
}
