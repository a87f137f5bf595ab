//! Channels to other services (neighbors) for the generated clients.
//!
//! A channel is created once at start for each neighbor and cloned freely. It connects at the first call, keeps one
//! connection to every address of the neighbor's name, and spreads calls over them; an unreachable address gets none. On
//! every call it:
//! - sets a deadline: the remaining time of the running call less a margin, at most the settings' (see
//!   [`crate::deadline`]). With too little time left the call is not made;
//! - adds this service's token and the trace context;
//! - retries an UNAVAILABLE or a broken connection if the contract calls the method idempotent, with backoff, within the
//!   deadline, the delay that the neighbor asks for and the retry budget. A response that has begun is never retried;
//! - returns a typed status: DEADLINE_EXCEEDED if the time ran out, UNAVAILABLE if no address could be reached.
//!
//! It never retries a method that is not idempotent, and never makes a call without a deadline.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri};
use serde::Deserialize;
use tonic::{Status, body::Body};
use tower::Service;

use crate::{
    auth::ServiceTokens, backoff::BackoffConfig, contract::Contract, deadline::Deadline, tasks::Tasks,
    telemetry::propagation,
};

use self::{
    balance::Balancer,
    budget::RetryBudget,
    metrics::Methods,
    resolve::{SystemResolver, keep_resolving},
};

pub use self::resolve::Resolve;

mod backend;
mod balance;
mod budget;
mod call;
mod metrics;
mod request;
mod resolve;
mod response;

/// Settings of the channel to one neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// Required. `http://host:port`; calls use all addresses of the host.
    pub target: String,
    /// Time limit for opening a connection (default 1 s).
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Time limit of a call with all its attempts, and of a stream until it begins (default 5 s).
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
    /// Time limit of a stream (default 1 h).
    #[serde(with = "humantime_serde")]
    pub stream_deadline: Duration,
    /// Time between two lookups of the host's addresses, give or take a quarter (default 5 s).
    #[serde(with = "humantime_serde")]
    pub resolve_interval: Duration,
    /// Longest request (default 4 MiB).
    pub request_bytes_max: usize,
    /// Retries of failed calls.
    pub retry: RetryConfig,
}

/// Limits of retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Attempts of one call and the waits between them (default 4 attempts, waits of up to 25 ms to 500 ms).
    pub backoff: BackoffConfig,
    /// Retries per hundred calls (default 10).
    pub budget_percent: u32,
    /// Retries on top of `budget_percent` (default 10), so that a channel with few calls can retry too.
    pub budget_floor: u32,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            target: String::new(),
            connect_timeout: Duration::from_secs(1),
            deadline: Duration::from_secs(5),
            stream_deadline: Duration::from_secs(60 * 60),
            resolve_interval: Duration::from_secs(5),
            request_bytes_max: 4 * 1024 * 1024,
            retry: RetryConfig::default(),
        }
    }
}

impl Default for RetryConfig {
    fn default() -> Self {
        let backoff = BackoffConfig {
            initial: Duration::from_millis(25),
            max: Duration::from_millis(500),
            multiplier: 2,
            attempts_max: 4,
        };
        Self { backoff, budget_percent: 10, budget_floor: 10 }
    }
}

/// A channel that could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The target is not `http://host:port`.
    #[error("the target of {neighbor} is not http://host:port: {target:?}")]
    Target {
        /// Name of the neighbor.
        neighbor: &'static str,
        /// The refused value.
        target: String,
    },
}

/// Creates channels. They share the contracts, this service's tokens and its task set.
#[derive(Clone, Debug)]
pub struct Neighbors {
    methods: Arc<Methods>,
    tokens: Option<Arc<ServiceTokens>>,
    tasks: Tasks,
}

impl Neighbors {
    /// Creates a factory. `contract` decides which methods may be retried. Without `tokens`, calls carry no token of this
    /// service. Lookups and connects run in `tasks`.
    #[must_use]
    pub fn new(contract: &Contract, tokens: Option<Arc<ServiceTokens>>, tasks: Tasks) -> Self {
        Self { methods: Arc::new(Methods::new(contract)), tokens, tasks }
    }

    /// Creates a channel to `name` that resolves its target through the system. Does not connect yet. Needs a runtime.
    pub fn channel(&self, name: &'static str, config: &ClientConfig) -> Result<Channel, ClientError> {
        let origin = origin(name, config)?;
        let resolver =
            SystemResolver::new(origin.host().unwrap_or_default(), origin.port_u16().unwrap_or_default());
        Ok(self.open(name, config, origin, resolver))
    }

    /// Does the same as [`Neighbors::channel`], with addresses from `resolver`; the target is only the `:authority`.
    pub fn channel_with<R: Resolve>(
        &self,
        name: &'static str,
        config: &ClientConfig,
        resolver: R,
    ) -> Result<Channel, ClientError> {
        Ok(self.open(name, config, origin(name, config)?, resolver))
    }

    fn open<R: Resolve>(
        &self,
        name: &'static str,
        config: &ClientConfig,
        origin: Uri,
        resolver: R,
    ) -> Channel {
        let balancer = Arc::new(Balancer::new(name, config.connect_timeout, self.tasks.clone()));
        let lookups =
            keep_resolving(Arc::downgrade(&balancer), resolver, config.resolve_interval, self.tasks.token());
        self.tasks.spawn("client-resolve", lookups);
        let shared = Shared {
            name,
            origin,
            budget: RetryBudget::new(config.retry.budget_percent, config.retry.budget_floor),
            config: config.clone(),
            balancer,
            methods: Arc::clone(&self.methods),
            tokens: self.tokens.clone(),
        };
        Channel { shared: Arc::new(shared) }
    }
}

/// Carries calls to one neighbor, for a generated client. Clones share connections and budget.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    /// Scheme and authority of every call.
    origin: Uri,
    config: ClientConfig,
    balancer: Arc<Balancer>,
    budget: RetryBudget,
    methods: Arc<Methods>,
    tokens: Option<Arc<ServiceTokens>>,
}

impl Channel {
    /// Makes a call within `deadline` and its own `grpc-timeout`, but not within the running call's deadline: a stream that
    /// is passed on outlives the call that opened it.
    pub fn call_within(
        &self,
        request: Request<Body>,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<Response<Body>, Status>> + Send + use<> {
        let (mut head, body) = request.into_parts();
        // Not in the future, which may be polled in another task without the caller's context.
        propagation::inject(&mut head.headers);
        Arc::clone(&self.shared).call(head.uri, head.headers, body, deadline)
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Always ready: the wait for a connection is part of the call, so the call's deadline bounds it.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Reads the deadline here instead of in the future, like the trace.
        Box::pin(self.call_within(request, Deadline::current()))
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Channel").field("neighbor", &self.shared.name).finish_non_exhaustive()
    }
}

fn origin(neighbor: &'static str, config: &ClientConfig) -> Result<Uri, ClientError> {
    let refuse = || ClientError::Target { neighbor, target: config.target.clone() };
    let uri: Uri = config.target.parse().map_err(|_malformed| refuse())?;
    let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
    let is_complete = uri.scheme_str() == Some("http") && uri.host().is_some() && uri.port_u16().is_some();
    if is_bare && is_complete { Ok(uri) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(target: &str) -> ClientConfig {
        ClientConfig { target: target.to_owned(), ..ClientConfig::default() }
    }

    #[test]
    fn target_must_be_http_with_host_and_port() {
        for target in ["http://inventory:50051", "http://127.0.0.1:1/", "http://[::1]:50051"] {
            assert!(origin("inventory", &config(target)).is_ok(), "{target}");
        }
        for target in [
            "",
            "inventory:50051",
            "http://inventory",
            "https://inventory:1",
            "http://a:1/b",
            "http://a:1/?b",
        ] {
            assert!(origin("inventory", &config(target)).is_err(), "{target}");
        }
    }
}
