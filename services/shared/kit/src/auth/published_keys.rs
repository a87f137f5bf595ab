//! Keys of an issuer that publishes them at a URL. They are fetched in the background, at intervals and when a token names
//! an unknown key, and the last ones are kept while the issuer is unreachable.
//!
//! One task fetches for all calls; a call only requests a fetch and waits for a bounded time. The rate of fetches never
//! depends on callers.

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

/// Limit of the calls that wait for a fetch. Any token can name an unknown key, and an issuer may be slow: without a limit,
/// outsiders could occupy all permits of the server.
const WAITING_CALLS_MAX: usize = 256;

/// Published keys of one issuer.
pub(super) struct PublishedKeys {
    issuer: Arc<str>,
    url: String,
    config: KeyFetchConfig,
    state: watch::Sender<State>,
    /// Wakes the task for a fetch before its time.
    fetch_wanted: Notify,
    /// One permit per call that waits for a fetch.
    waiting_calls: Semaphore,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Keys of the last successful fetch.
    keys: Option<Arc<KeySet>>,
    /// End of the last attempt, successful or not.
    attempt_end: Option<Instant>,
}

/// The cause of a failed fetch.
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

    /// Returns the keys of the last successful fetch, `None` before the first.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.state.borrow().keys.clone()
    }

    /// Requests a fetch and waits for it. Returns true after an attempt, successful or not. Returns false without one if the
    /// last ended less than `interval_min` ago or too many calls wait already, and if it takes longer than `timeout`.
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

    /// Fetches until `shutdown` and calls `changed` after each change of the keys. Not a `Worker`: a failed fetch is retried
    /// sooner than `interval`, and hints are limited to one per `interval_min`.
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
                        "failed to fetch an issuer's keys, retrying"
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

    /// Stores the keys. Returns true if they differ from the previous ones.
    fn store(&self, keys: KeySet) -> bool {
        if self.current().is_some_and(|current| *current == keys) {
            return false;
        }
        tracing::info!(issuer = &*self.issuer, url = self.url, keys = keys.len(), "an issuer's keys changed");
        self.state.send_modify(|state| state.keys = Some(Arc::new(keys)));
        true
    }

    /// Waits for `next`, or until a call needs the keys and `interval_min` has passed.
    async fn pause(&self, next: Duration) {
        let wanted = async {
            loop {
                self.fetch_wanted.notified().await;
                // Callers may have stored a permit while the last attempt was running.
                if !self.is_too_soon(self.state.borrow().attempt_end) {
                    return;
                }
            }
        };
        // The outcome does not matter: either way the next fetch is due.
        let _ = tokio::time::timeout(next, wanted).await;
    }

    fn is_too_soon(&self, attempt_end: Option<Instant>) -> bool {
        attempt_end.is_some_and(|end| end.elapsed() < self.config.interval_min)
    }

    async fn fetch(&self, client: &mut Option<reqwest::Client>) -> Result<KeySet, FetchError> {
        let client = match client {
            Some(client) => client,
            // Created at the first fetch instead of at start: it fails without the system's certificates, which may come later.
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
            // Keys are accepted only from the URL in the settings.
            .redirect(reqwest::redirect::Policy::none())
            // No idle connections: fetches are rare, and the issuer closes its end first.
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
    async fn number_of_waiting_calls_is_bounded() {
        let config = KeyFetchConfig {
            interval: Duration::from_secs(300),
            interval_min: Duration::from_secs(10),
            timeout: Duration::from_secs(3),
            document_bytes_max: 1024,
        };
        // No task runs, which looks like an issuer that does not respond.
        let keys = PublishedKeys::new("issuer".into(), "http://127.0.0.1:1", &config);
        let mut waiting: Vec<_> = (0..WAITING_CALLS_MAX).map(|_| Box::pin(keys.refresh())).collect();
        for call in &mut waiting {
            assert_eq!(poll!(call), Poll::Pending);
        }
        assert_eq!(
            poll!(Box::pin(keys.refresh())),
            Poll::Ready(false),
            "one call too many is refused immediately"
        );
        waiting.pop();
        assert_eq!(poll!(Box::pin(keys.refresh())), Poll::Pending, "a permit is free again");
    }
}
