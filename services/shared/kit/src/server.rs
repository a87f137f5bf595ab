//! The server every service stands on: one port for calls, one for operators.
//!
//! A [`Chassis`] is what a service's `build` is given: it takes what it needs from it and adds its gRPC services to it.
//! [`Chassis::start`] then opens the ports. `kit::run` does this for a process; tests and benches call it themselves,
//! on port 0, and meet the same code.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use metrics_exporter_prometheus::PrometheusHandle;
use onsale_types::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;

use self::{
    admin::Admin,
    call_pipeline::CallPipeline,
    connections::Connections,
    response_body::{ResponseBody, StreamBody},
    route::{RegisteredService, Routes},
};
pub use self::{request_body::RequestBody, route::Handler, secondary_endpoint::SecondaryEndpoint};
use crate::{
    auth::{KeyError, ServiceTokens, Verifier},
    client::Neighbours,
    config::ChassisConfig,
    contract::{Contract, ContractError},
    health::Readiness,
    tasks::Tasks,
    worker::Worker,
};

mod admin;
mod call_pipeline;
mod connections;
pub(crate) mod grpc_timeout;
mod limits;
mod lingering_close;
pub(crate) mod metrics;
mod refusal;
mod request_body;
mod response_body;
mod route;
mod secondary_endpoint;
mod standard;
mod status;

/// How many tenths of the time for the drain may have passed when the calls have ended, and when the background tasks
/// have. What is left is for the last traces, after the server.
const CALLS_TENTHS: u32 = 8;
const TASKS_TENTHS: u32 = 9;

/// What a service is built from and added to.
pub struct Chassis {
    service: &'static str,
    config: ChassisConfig,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    readiness: Readiness,
    tokens: Arc<ServiceTokens>,
    services: Vec<RegisteredService>,
    descriptor_sets: Vec<&'static [u8]>,
    /// What reflection shows instead of those.
    reflected: Option<&'static [u8]>,
    secondary_endpoint: SecondaryEndpoint,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The contracts do not say who may call what.
    #[error("failed to read the contracts")]
    Contract(#[source] ContractError),
    /// A service was added that no contract has.
    #[error("no contract has the service {0}")]
    NotInContract(&'static str),
    /// A service was added twice.
    #[error("the service {0} was added twice")]
    ServedTwice(&'static str),
    /// A key cannot be used.
    #[error("failed to read the keys for tokens")]
    Keys(#[source] KeyError),
    /// Reflection refused the descriptors.
    #[error("failed to set up reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// A port cannot be opened.
    #[error("failed to listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Chassis {
    /// The chassis of `service`; nothing runs yet. Serves the project's contracts.
    pub fn new(
        service: &'static str,
        config: ChassisConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let tokens =
            ServiceTokens::new(service, &config.auth.mesh, Arc::clone(&clock)).map_err(StartError::Keys)?;
        Ok(Self {
            service,
            config,
            clock,
            tasks: Tasks::new(),
            readiness: Readiness::new(),
            tokens: Arc::new(tokens),
            services: Vec::new(),
            descriptor_sets: vec![onsale_proto::DESCRIPTORS],
            reflected: None,
            secondary_endpoint: SecondaryEndpoint::default(),
        })
    }

    /// Adds a generated gRPC service. Its contract must be known and say who may call each method.
    pub fn add_service<S: Handler + NamedService + 'static>(&mut self, service: S) -> &mut Self {
        self.services.push(RegisteredService::new(service));
        self
    }

    /// Adds a handler for the service with this full name, for what is not generated: a proxy, or a test.
    pub fn add_handler(&mut self, service: &'static str, handler: impl Handler + 'static) -> &mut Self {
        self.services.push(RegisteredService { name: service, handler: Arc::new(handler) });
        self
    }

    /// Adds contracts besides the project's own: an encoded descriptor set. For tests and tools.
    pub fn add_descriptors(&mut self, descriptor_set: &'static [u8]) -> &mut Self {
        self.descriptor_sets.push(descriptor_set);
        self
    }

    /// Has reflection show these contracts and no others, where strangers may ask.
    pub fn reflect_only(&mut self, descriptor_set: &'static [u8]) -> &mut Self {
        self.reflected = Some(descriptor_set);
        self
    }

    /// The way in for calls that arrive elsewhere than on the gRPC port. Open once the server has started.
    #[must_use]
    pub fn secondary_endpoint(&self) -> SecondaryEndpoint {
        self.secondary_endpoint.clone()
    }

    /// The name of the service.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// The settings every service shares.
    #[must_use]
    pub fn config(&self) -> &ChassisConfig {
        &self.config
    }

    /// The time of day.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// Where background work is started. It is asked to end after the last call has been answered.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Where checks are added without which the service is of no use.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The tokens this service shows to its neighbours.
    #[must_use]
    pub fn tokens(&self) -> Arc<ServiceTokens> {
        Arc::clone(&self.tokens)
    }

    /// Makes channels to other services, which carry this service's tokens and the running call's deadline and trace.
    pub fn neighbours(&self) -> Result<Neighbours, StartError> {
        let contract = Contract::load(&self.descriptor_sets).map_err(StartError::Contract)?;
        Ok(Neighbours::new(&contract, Some(self.tokens()), self.tasks.clone()))
    }

    /// Opens both ports and serves. Calls are answered from here on; the first readiness checks have run.
    pub async fn start(self) -> Result<RunningServer, StartError> {
        let recorder = crate::telemetry::metrics::handle();
        metrics::describe();
        let (health, reporter) = standard::health();
        let reflected = self.reflected.map_or_else(|| self.descriptor_sets.clone(), |only| vec![only]);
        let [reflection, reflection_alpha] = standard::reflection(&reflected, &self.services)?;
        let mut contract = Contract::load(&self.descriptor_sets).map_err(StartError::Contract)?;
        standard::add_contracts(&mut contract)?;
        let routes = Routes::new(&contract, &self.services, &[health, reflection, reflection_alpha])?;
        let verifier = Verifier::new(&self.config.auth, Arc::clone(&self.clock)).map_err(StartError::Keys)?;
        verifier.start_key_fetch(&self.tasks);
        let pipeline = Arc::new(CallPipeline::new(routes, Arc::new(verifier), self.config.server.clone()));

        let listener = listen(self.config.server.listen).await?;
        let admin_listener = listen(self.config.server.admin_listen).await?;
        let address = local_address(&listener, self.config.server.listen)?;
        let admin_address = local_address(&admin_listener, self.config.server.admin_listen)?;

        self.readiness.run_checks().await;
        standard::set_health(&reporter, &pipeline, &self.readiness.verdict()).await;
        self.readiness.watch(&self.tasks);
        standard::keep_health_current(reporter.clone(), Arc::clone(&pipeline), &self.readiness, &self.tasks);
        let drain = self.secondary_endpoint.drain();
        let connections =
            Connections::serve(listener, Arc::clone(&pipeline), self.config.server.clone(), drain);
        self.secondary_endpoint.open(&pipeline);
        let admin = Admin {
            pipeline: Arc::clone(&pipeline),
            connections: connections.open(),
            readiness: self.readiness.clone(),
            tasks: self.tasks.clone(),
            recorder: Arc::clone(&recorder),
        };
        let admin = admin::serve(admin_listener, admin);
        start_metrics_upkeep(recorder, &self.tasks);
        tracing::info!(service = self.service, %address, %admin_address, "serving");
        Ok(RunningServer {
            address,
            admin_address,
            connections,
            admin,
            reporter,
            pipeline,
            readiness: self.readiness,
            tasks: self.tasks,
            config: self.config,
        })
    }
}

impl std::fmt::Debug for Chassis {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Chassis").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A server that answers calls. Dropping it does not stop it: [`RunningServer::shutdown`] does.
pub struct RunningServer {
    address: SocketAddr,
    admin_address: SocketAddr,
    connections: Connections,
    /// Cancelled last, so that operators can watch the drain.
    admin: CancellationToken,
    reporter: tonic_health::server::HealthReporter,
    pipeline: Arc<CallPipeline>,
    readiness: Readiness,
    tasks: Tasks,
    config: ChassisConfig,
}

/// How a drain ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that had to be cut, with the calls on them.
    pub connections_cut: usize,
    /// Background tasks that had to be aborted.
    pub tasks_aborted: Vec<&'static str>,
}

impl DrainReport {
    /// Whether everything ended by itself.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.connections_cut == 0 && self.tasks_aborted.is_empty()
    }
}

impl RunningServer {
    /// Where calls are answered.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/metrics`, `/livez` and `/readyz` are.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin_address
    }

    /// The server's readiness.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The server's background tasks.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Stops within `server.drain.total`: NOT_SERVING at once; after the lame-duck time no new calls, streams end with
    /// a retryable status, calls under way finish; then the background tasks, then the admin port.
    pub async fn shutdown(self) -> DrainReport {
        let begin = Instant::now();
        let drain = &self.config.server.drain;
        self.readiness.begin_drain();
        standard::set_health(&self.reporter, &self.pipeline, &self.readiness.verdict()).await;
        let (requests, streams) = self.pipeline.in_progress();
        tracing::info!(requests, streams, total = ?drain.total, "draining");
        tokio::time::sleep(drain.lame_duck).await;

        let left_of = |tenths: u32| (drain.total / 10).saturating_mul(tenths).saturating_sub(begin.elapsed());
        let connections_cut = self.connections.drain(left_of(CALLS_TENTHS)).await;
        let tasks_aborted = self.tasks.shutdown(left_of(TASKS_TENTHS)).await;
        self.admin.cancel();
        let drained = DrainReport { connections_cut, tasks_aborted };
        tracing::info!(?drained, elapsed = ?begin.elapsed(), "drained");
        drained
    }
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RunningServer").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| StartError::Listen { address, source })
}

fn local_address(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener.local_addr().map_err(|source| StartError::Listen { address, source })
}

/// Folds the samples of histograms into their buckets every 5 s, so that they do not pile up between two scrapes.
fn start_metrics_upkeep(recorder: Arc<PrometheusHandle>, tasks: &Tasks) {
    Worker::every("metrics-upkeep", Duration::from_secs(5)).start(tasks, move || {
        recorder.run_upkeep();
        std::future::ready(Ok::<_, Infallible>(()))
    });
}
