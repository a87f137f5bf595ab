//! Life of a mesh: starts all processes in order, keeps the manifest up to date, and stops them in reverse order.

use std::{future::Future, pin::pin, time::Duration};

use anyhow::{Context, bail};
use onsale::mesh::{
    folder::Folder,
    manifest::{Endpoints, Issuer, Manifest, ProcessInfo, ProcessState},
};

use super::{
    console::{Console, seconds},
    demo,
    ports::Port,
    processes::{self, MeshSetup},
    rotation,
    settings::{AUDIENCE, ISSUER, postgres_url, redis_urls},
    stores,
    supervisor::{ProcessEvent, ProcessReport, ProcessSpec, Supervisor},
};

/// Longest time for the whole start.
const START_TIME_MAX: Duration = Duration::from_secs(180);
/// Interval at which the progress line is redrawn when no process changes its state.
const REDRAW: Duration = Duration::from_millis(200);
/// Delay of a restart from which the message names it.
const REPORTED_DELAY_MIN: Duration = Duration::from_secs(1);
/// Interval between two rotations of the logs.
const ROTATE_EVERY: Duration = Duration::from_secs(10);

/// A mesh: its processes and its manifest.
pub(crate) struct Mesh {
    setup: MeshSetup,
    supervisor: Supervisor,
    console: Console,
    manifest: Manifest,
    /// Set once all processes were ready for the first time and the manifest was written.
    published: bool,
}

impl Mesh {
    pub(crate) fn new(setup: MeshSetup, console: Console, http: reqwest::Client) -> Self {
        let ports = &setup.ports;
        let endpoints = Endpoints {
            front_door: ports.url(Port::FrontDoor),
            gateway_grpc: ports.url(Port::Gateway),
            gateway_http: ports.url(Port::GatewayHttp),
            envoy_admin: ports.url(Port::EnvoyAdmin),
            mail: ports.url(Port::MailPage),
            smtp: format!("smtp://{}", ports.address(Port::Smtp)),
            provider: ports.url(Port::Provider),
            postgres: postgres_url(ports),
            redis: redis_urls(ports),
        };
        let issuer = Issuer {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            jwks: setup.secrets.development.jwks.clone(),
        };
        let manifest = Manifest {
            supervisor: std::process::id(),
            endpoints,
            issuer,
            demo_event: None,
            processes: Vec::new(),
        };
        let supervisor = Supervisor::new(setup.folder.clone(), setup.ports.clone(), http);
        Self { setup, supervisor, console, manifest, published: false }
    }

    /// Starts every process, waits until all are ready, and writes the manifest.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        let started = tokio::time::timeout(START_TIME_MAX, self.start_all()).await;
        if let Ok(result) = started {
            return result;
        }
        let waiting = self.unready().join(", ");
        bail!("timed out after {} s waiting for {waiting}: see `onsale logs`", START_TIME_MAX.as_secs())
    }

    async fn start_all(&mut self) -> anyhow::Result<()> {
        let folder = self.setup.folder.clone();
        let nodes = self.setup.redis_nodes();
        stores::prepare_redis(&folder, &nodes)?;
        for spec in self.setup.redis()?.into_iter().chain(self.setup.sandbox()) {
            self.supervise(spec);
        }
        let preparing = async {
            tokio::try_join!(stores::prepare_postgres(&folder), stores::open_redis(&folder, &nodes))
        };
        let (postgres, ()) = self.supervise_while(preparing).await?;
        self.supervise(self.setup.postgres(&postgres)?);
        let ports = self.setup.ports.clone();
        self.supervise_while(stores::open_postgres(&postgres, &ports)).await?;
        let services = self.setup.services();
        for spec in services.into_iter().chain([self.setup.gateway(), self.setup.envoy()?]) {
            self.supervise(spec);
        }
        while !self.unready().is_empty() {
            self.handle_next_report().await?;
        }
        self.console.finish_progress();
        let front_door = self.manifest.endpoints.front_door.clone();
        match self.supervise_while(demo::ensure(&folder, &front_door)).await {
            Ok(event) => self.manifest.demo_event = Some(event),
            Err(error) => self.console.say(&format!("failed to create the demo event: {error:#}")),
        }
        self.published = true;
        self.publish()
    }

    /// Handles reports and rotates logs until the caller drops the future.
    pub(crate) async fn run(&mut self) -> anyhow::Result<()> {
        let mut rotate = tokio::time::interval(ROTATE_EVERY);
        loop {
            tokio::select! {
                report = self.supervisor.next() => {
                    if let Err(error) = self.apply(report) {
                        self.console.say(&format!("{error:#}"));
                    }
                    self.publish()?;
                }
                _ = rotate.tick() => rotation::rotate(&self.setup.folder.logs()),
            }
        }
    }

    /// Removes the manifest and stops every process.
    pub(crate) async fn stop(mut self) {
        self.console.finish_progress();
        let begun = self.console.elapsed();
        self.console.say("stopping");
        remove_manifest(&self.setup.folder);
        self.supervisor.stop().await;
        let took = self.console.elapsed().saturating_sub(begun);
        self.console.say(&format!("stopped ({})", seconds(took)));
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn console(&mut self) -> &mut Console {
        &mut self.console
    }

    fn supervise(&mut self, spec: ProcessSpec) {
        let ports = &self.setup.ports;
        self.manifest.processes.push(ProcessInfo {
            name: spec.launch.name.clone(),
            state: ProcessState::Starting,
            pid: None,
            addresses: spec.ports.iter().map(|port| ports.address(*port).to_string()).collect(),
            admin: spec.admin.map(|port| ports.url(port)),
            check: spec.check.clone(),
            log: spec.launch.log.clone(),
            restarts: 0,
        });
        self.supervisor.supervise(spec);
    }

    /// Runs `work` and handles reports meanwhile. Fails early if a process stays down.
    async fn supervise_while<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                handled = self.handle_next_report() => handled?,
            }
        }
    }

    /// Handles one report if it arrives within 200 ms, and redraws the progress line during the start.
    async fn handle_next_report(&mut self) -> anyhow::Result<()> {
        if let Ok(report) = tokio::time::timeout(REDRAW, self.supervisor.next()).await {
            self.apply(report)?;
        }
        if !self.published {
            let waiting = self.unready();
            let ready = self.manifest.processes.len().saturating_sub(waiting.len());
            self.console.progress(ready, processes::COUNT, &waiting);
        }
        Ok(())
    }

    /// Records a report in the manifest and prints it. Fails if a process stays down.
    fn apply(&mut self, report: ProcessReport) -> anyhow::Result<()> {
        let ProcessReport { name, event } = report;
        let info = self.manifest.processes.iter_mut().find(|info| info.name == name);
        let info = info.context("received a report about an unknown process")?;
        match event {
            ProcessEvent::Started { pid } => {
                info.state = ProcessState::Starting;
                info.pid = Some(pid);
            }
            ProcessEvent::Ready => {
                info.state = ProcessState::Ready;
                if info.restarts > 0 {
                    self.console.say(&format!("{name} is back"));
                } else {
                    self.console.ready(&name);
                }
            }
            ProcessEvent::Exited { how, restart_in } => {
                info.state = ProcessState::Restarting;
                info.pid = None;
                info.restarts = info.restarts.saturating_add(1);
                let when = if restart_in < REPORTED_DELAY_MIN {
                    String::new()
                } else {
                    format!(" in {}", seconds(restart_in))
                };
                self.console.say(&format!("{name} {how}; starting it again{when}"));
            }
            ProcessEvent::Failed { how, log } => {
                info.state = ProcessState::Failed;
                info.pid = None;
                let path = info.log.display();
                bail!("{name} {how} and stays down; the end of {path}:\n{log}");
            }
            ProcessEvent::Stopped => {
                info.state = ProcessState::Stopped;
                info.pid = None;
            }
        }
        Ok(())
    }

    fn unready(&self) -> Vec<String> {
        let waiting = self.manifest.processes.iter().filter(|info| info.state != ProcessState::Ready);
        waiting.map(|info| info.name.clone()).collect()
    }

    fn publish(&self) -> anyhow::Result<()> {
        self.manifest.write_in(&self.setup.folder)
    }
}

/// Removes the manifest, so that no tool uses a mesh that stops or has stopped.
pub(crate) fn remove_manifest(folder: &Folder) {
    let _ = std::fs::remove_file(folder.manifest());
}
