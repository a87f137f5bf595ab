//! The server of every service: one port for gRPC calls, one for operators.
//!
//! A service's `build` receives a [`Chassis`], takes its clock, tasks and tokens from it, and adds gRPC services to it.
//! [`Chassis::start`] then opens the ports. `kit::run` does this for a process. Tests and benches call it themselves on
//! port 0 and run the same code.

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
    client::Neighbors,
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

/// Ends of the phases of a drain, in tenths of `server.drain.total`: calls end by the first, background tasks by the
/// second. The last tenth is left for the export of traces after the server has stopped.
const CALLS_TENTHS: u32 = 8;
const TASKS_TENTHS: u32 = 9;

/// Collects the parts of a service before it starts.
pub struct Chassis {
    service: &'static str,
    config: ChassisConfig,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    readiness: Readiness,
    tokens: Arc<ServiceTokens>,
    services: Vec<RegisteredService>,
    descriptor_sets: Vec<&'static [u8]>,
    /// Descriptors that reflection shows instead of `descriptor_sets`.
    reflected: Option<&'static [u8]>,
    secondary_endpoint: SecondaryEndpoint,
}

/// A server that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A contract cannot be read, or a method lacks its access option.
    #[error("failed to read the contracts")]
    Contract(#[source] ContractError),
    /// No loaded contract declares the added service.
    #[error("no contract has the service {0}")]
    NotInContract(&'static str),
    /// Two handlers were added for one service.
    #[error("the service {0} was added twice")]
    ServedTwice(&'static str),
    /// A key of section `auth` cannot be used.
    #[error("failed to read the keys for tokens")]
    Keys(#[source] KeyError),
    /// Reflection refused the descriptors.
    #[error("failed to set up reflection")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// A port cannot be opened.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address from `server.listen` or `server.admin_listen`.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl Chassis {
    /// Creates the chassis of `service` with the project's contracts. Nothing runs until [`Chassis::start`].
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

    /// Adds a generated gRPC service. A loaded contract must declare it and say for each method who may call it.
    pub fn add_service<S: Handler + NamedService + 'static>(&mut self, service: S) -> &mut Self {
        self.services.push(RegisteredService::new(service));
        self
    }

    /// Adds a handler for the service with this full name, for services that are not generated: proxies and tests.
    pub fn add_handler(&mut self, service: &'static str, handler: impl Handler + 'static) -> &mut Self {
        self.services.push(RegisteredService { name: service, handler: Arc::new(handler) });
        self
    }

    /// Adds an encoded descriptor set to the project's own contracts. For tests and tools.
    pub fn add_descriptors(&mut self, descriptor_set: &'static [u8]) -> &mut Self {
        self.descriptor_sets.push(descriptor_set);
        self
    }

    /// Restricts reflection to these contracts, for a server that outsiders can reach.
    pub fn reflect_only(&mut self, descriptor_set: &'static [u8]) -> &mut Self {
        self.reflected = Some(descriptor_set);
        self
    }

    /// Returns an endpoint for calls that arrive elsewhere than on the gRPC port. It refuses calls until the server starts.
    #[must_use]
    pub fn secondary_endpoint(&self) -> SecondaryEndpoint {
        self.secondary_endpoint.clone()
    }

    /// The service's name.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// The settings that all services share.
    #[must_use]
    pub fn config(&self) -> &ChassisConfig {
        &self.config
    }

    /// The clock for business times.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The task set for background work. Its token is cancelled after all calls have ended or were cut.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// The readiness of this instance, to which a service adds checks of the stores that it cannot work without.
    #[must_use]
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// The tokens that this service presents to other services.
    #[must_use]
    pub fn tokens(&self) -> Arc<ServiceTokens> {
        Arc::clone(&self.tokens)
    }

    /// Creates a factory of channels to other services. Calls carry this service's token and the running call's deadline
    /// and trace.
    pub fn neighbors(&self) -> Result<Neighbors, StartError> {
        let contract = Contract::load(&self.descriptor_sets).map_err(StartError::Contract)?;
        Ok(Neighbors::new(&contract, Some(self.tokens()), self.tasks.clone()))
    }

    /// Opens both ports and serves calls. The first readiness checks run before this returns.
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

/// A server that serves calls. [`RunningServer::shutdown`] stops it; dropping it does not.
pub struct RunningServer {
    address: SocketAddr,
    admin_address: SocketAddr,
    connections: Connections,
    /// Cancelled at the end of the drain, so that operators can watch it.
    admin: CancellationToken,
    reporter: tonic_health::server::HealthReporter,
    pipeline: Arc<CallPipeline>,
    readiness: Readiness,
    tasks: Tasks,
    config: ChassisConfig,
}

/// The result of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were closed with calls still running on them.
    pub connections_cut: usize,
    /// Background tasks that were aborted, by name.
    pub tasks_aborted: Vec<&'static str>,
}

impl DrainReport {
    /// Returns true if no connection was cut and no task aborted.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.connections_cut == 0 && self.tasks_aborted.is_empty()
    }
}

impl RunningServer {
    /// The address of the gRPC port, with the real port if the settings say 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the operators' port, which serves `/metrics`, `/livez` and `/readyz`.
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

    /// Stops the server within `server.drain.total`. Health turns NOT_SERVING immediately. After the lame-duck time, new
    /// calls are refused, streams end with a retryable status and running calls finish. Background tasks end next, and
    /// the operators' port closes last.
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

/// Folds histogram samples into their buckets every 5 s, so that they do not accumulate between two scrapes.
fn start_metrics_upkeep(recorder: Arc<PrometheusHandle>, tasks: &Tasks) {
    Worker::every("metrics-upkeep", Duration::from_secs(5)).start(tasks, move || {
        recorder.run_upkeep();
        std::future::ready(Ok::<_, Infallible>(()))
    });
}
