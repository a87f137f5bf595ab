//! Calls to neighbours: channels for the generated clients.
//!
//! A channel is made once at start for each neighbour and cloned freely. It connects when the first call needs it, and
//! keeps a connection to every address the neighbour's name stands for; calls are spread over them, and an address that
//! cannot be reached gets none. On every call it:
//! - sets a deadline: what the running call has left less a margin, at most the settings' (see [`crate::deadline`]). With
//!   too little left the call is not made at all;
//! - shows this service's token and passes the trace on;
//! - repeats what may be repeated: an UNAVAILABLE answer or a broken connection, of a method its contract calls
//!   idempotent, with backoff, as far as the deadline, the neighbour's own wish and the retry budget allow. Once an
//!   answer has begun it is never repeated;
//! - answers with a typed status: DEADLINE_EXCEEDED when the time ran out, UNAVAILABLE when nothing could be reached.
//!
//! It must never repeat a method that is not idempotent, and never make a call without an end.

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

/// How to reach one neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// Required: `http://host:port`. All addresses of the host are used.
    pub target: String,
    /// How long opening a connection may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// The longest that a call may take, and a stream until it begins, all attempts together.
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
    /// The longest that a stream may run.
    #[serde(with = "humantime_serde")]
    pub stream_deadline: Duration,
    /// How often the host's addresses are looked up.
    #[serde(with = "humantime_serde")]
    pub resolve_interval: Duration,
    /// The longest request.
    pub request_bytes_max: usize,
    /// Repeating of failed calls.
    pub retry: RetryConfig,
}

/// When failed calls are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// The attempts of one call, and the waits between them.
    pub backoff: BackoffConfig,
    /// Retries for every hundred calls.
    pub budget_percent: u32,
    /// Retries on top of those, so that a few calls can be repeated too.
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

/// A channel could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The target is not `http://host:port`.
    #[error("the target of {neighbour} is not http://host:port: {target:?}")]
    Target {
        /// Whose.
        neighbour: &'static str,
        /// What it is instead.
        target: String,
    },
}

/// Makes channels. They share the contracts, this service's tokens and its task set.
#[derive(Clone, Debug)]
pub struct Neighbours {
    methods: Arc<Methods>,
    tokens: Option<Arc<ServiceTokens>>,
    tasks: Tasks,
}

impl Neighbours {
    /// `contract` says which methods may be repeated; without `tokens` calls carry none of ours; lookups and connects
    /// run in `tasks`.
    #[must_use]
    pub fn new(contract: &Contract, tokens: Option<Arc<ServiceTokens>>, tasks: Tasks) -> Self {
        Self { methods: Arc::new(Methods::new(contract)), tokens, tasks }
    }

    /// A channel to `name`, found through the system's resolver. Does not connect yet. Needs a runtime.
    pub fn channel(&self, name: &'static str, config: &ClientConfig) -> Result<Channel, ClientError> {
        let origin = origin(name, config)?;
        let resolver =
            SystemResolver::new(origin.host().unwrap_or_default(), origin.port_u16().unwrap_or_default());
        Ok(self.open(name, config, origin, resolver))
    }

    /// As [`Neighbours::channel`], with addresses from `resolver`; the target is then only the name on the wire.
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

/// Carries calls to one neighbour: hand it to a generated client. Clones share connections and budget.
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
    /// Makes a call within `deadline` and whatever its `grpc-timeout` says, and not within the running call's time: a stream
    /// that is passed on outlives the call that opened it.
    pub fn call_within(
        &self,
        request: Request<Body>,
        deadline: Option<Deadline>,
    ) -> impl Future<Output = Result<Response<Body>, Status>> + Send + use<> {
        let (mut head, body) = request.into_parts();
        // Here and not in the future: this is surely the caller's task.
        propagation::inject(&mut head.headers);
        Arc::clone(&self.shared).call(head.uri, head.headers, body, deadline)
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // Waiting for a connection is a part of the call, where its deadline bounds it.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Read here and not in the future, as the trace is.
        Box::pin(self.call_within(request, Deadline::current()))
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Channel").field("neighbour", &self.shared.name).finish_non_exhaustive()
    }
}

fn origin(neighbour: &'static str, config: &ClientConfig) -> Result<Uri, ClientError> {
    let refuse = || ClientError::Target { neighbour, target: config.target.clone() };
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
    fn a_target_is_http_host_and_port_and_nothing_else() {
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
