//! A mesh from its first process to its last: starts all in order, tells how it is, stops all in the opposite order.

use std::{future::Future, pin::pin, time::Duration};

use anyhow::{Context, bail};

use super::{
    console::{Console, seconds},
    demo,
    parts::{self, Workshop},
    ports::Place,
    rotation,
    settings::{AUDIENCE, ISSUER, postgres_url, redis_urls},
    stores,
    supervisor::{News, Part, Report, Supervisor},
};
use onsale::mesh::{
    folder::Folder,
    manifest::{Endpoints, Issuer, Manifest, ProcessInfo, ProcessState},
};

/// A machine that needs longer for the whole start has another problem.
const START_TIME_MAX: Duration = Duration::from_secs(180);
/// How often the line on a terminal moves although nothing happened.
const REDRAW: Duration = Duration::from_millis(200);
/// Waiting less than this to start a process again is not worth saying.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often logs are looked at.
const ROTATE_EVERY: Duration = Duration::from_secs(10);

/// All that runs, and what is known about it.
pub(crate) struct Mesh {
    workshop: Workshop,
    supervisor: Supervisor,
    console: Console,
    manifest: Manifest,
    /// Whether the manifest is written: from when all was ready for the first time.
    published: bool,
}

impl Mesh {
    pub(crate) fn new(workshop: Workshop, console: Console, http: reqwest::Client) -> Self {
        let ports = &workshop.ports;
        let endpoints = Endpoints {
            front_door: ports.url(Place::FrontDoor),
            gateway_grpc: ports.url(Place::Gateway),
            gateway_http: ports.url(Place::GatewayHttp),
            envoy_admin: ports.url(Place::EnvoyAdmin),
            mail: ports.url(Place::MailPage),
            smtp: format!("smtp://{}", ports.address(Place::Smtp)),
            provider: ports.url(Place::Provider),
            postgres: postgres_url(ports),
            redis: redis_urls(ports),
        };
        let issuer = Issuer {
            issuer: ISSUER.to_owned(),
            audience: AUDIENCE.to_owned(),
            jwks: workshop.secrets.development.jwks.clone(),
        };
        let manifest = Manifest {
            supervisor: std::process::id(),
            endpoints,
            issuer,
            demo_event: None,
            processes: Vec::new(),
        };
        let supervisor = Supervisor::new(workshop.folder.clone(), workshop.ports.clone(), http);
        Self { workshop, supervisor, console, manifest, published: false }
    }

    /// Starts everything, waits until it is ready, and publishes where it is.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        let started = tokio::time::timeout(START_TIME_MAX, self.start_all()).await;
        if let Ok(result) = started {
            return result;
        }
        let waiting = self.waiting_for().join(", ");
        bail!("waited {} s in vain for {waiting}: see `onsale logs`", START_TIME_MAX.as_secs())
    }

    async fn start_all(&mut self) -> anyhow::Result<()> {
        let folder = self.workshop.folder.clone();
        let nodes = self.workshop.redis_nodes();
        stores::prepare_redis(&folder, &nodes)?;
        for part in self.workshop.redis()?.into_iter().chain(self.workshop.outside()) {
            self.keep(part);
        }
        let preparing = async {
            tokio::try_join!(stores::prepare_postgres(&folder), stores::open_redis(&folder, &nodes))
        };
        let (postgres, ()) = self.attend_while(preparing).await?;
        self.keep(self.workshop.postgres(&postgres)?);
        let ports = self.workshop.ports.clone();
        self.attend_while(stores::open_postgres(&postgres, &ports)).await?;
        let services = self.workshop.services();
        for part in services.into_iter().chain([self.workshop.gateway(), self.workshop.envoy()?]) {
            self.keep(part);
        }
        while !self.waiting_for().is_empty() {
            self.attend_once().await?;
        }
        self.console.settle();
        let front_door = self.manifest.endpoints.front_door.clone();
        match self.attend_while(demo::keep(&folder, &front_door)).await {
            Ok(event) => self.manifest.demo_event = Some(event),
            Err(error) => self.console.say(&format!("the demo event could not be made: {error:#}")),
        }
        self.published = true;
        self.publish()
    }

    /// Keeps it running until somebody asks it to stop.
    pub(crate) async fn attend(&mut self) -> anyhow::Result<()> {
        let mut rotate = tokio::time::interval(ROTATE_EVERY);
        loop {
            tokio::select! {
                report = self.supervisor.next() => {
                    if let Err(error) = self.take(report) {
                        self.console.say(&format!("{error:#}"));
                    }
                    self.publish()?;
                }
                _ = rotate.tick() => rotation::rotate(&self.workshop.folder.logs()),
            }
        }
    }

    /// Stops everything.
    pub(crate) async fn stop(mut self) {
        self.console.settle();
        let begun = self.console.elapsed();
        self.console.say("stopping");
        withdraw(&self.workshop.folder);
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

    fn keep(&mut self, part: Part) {
        let ports = &self.workshop.ports;
        self.manifest.processes.push(ProcessInfo {
            name: part.launch.name.clone(),
            state: ProcessState::Starting,
            pid: None,
            addresses: part.places.iter().map(|place| ports.address(*place).to_string()).collect(),
            admin: part.admin.map(|place| ports.url(place)),
            check: part.check.clone(),
            log: part.launch.log.clone(),
            restarts: 0,
        });
        self.supervisor.keep(part);
    }

    /// Does `work` and hears meanwhile what happens to the processes; ends early when one of them is lost.
    async fn attend_while<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                heard = self.attend_once() => heard?,
            }
        }
    }

    /// Waits for the next thing that happens, and shows how far the start is.
    async fn attend_once(&mut self) -> anyhow::Result<()> {
        if let Ok(report) = tokio::time::timeout(REDRAW, self.supervisor.next()).await {
            self.take(report)?;
        }
        if !self.published {
            let waiting = self.waiting_for();
            let ready = self.manifest.processes.len().saturating_sub(waiting.len());
            self.console.progress(ready, parts::COUNT, &waiting);
        }
        Ok(())
    }

    /// Notes and tells what happened. An error when a process stays down.
    fn take(&mut self, report: Report) -> anyhow::Result<()> {
        let Report { name, news } = report;
        let facts = self.manifest.processes.iter_mut().find(|facts| facts.name == name);
        let facts = facts.context("a report about an unknown process")?;
        match news {
            News::Started { pid } => {
                facts.state = ProcessState::Starting;
                facts.pid = Some(pid);
            }
            News::Ready => {
                facts.state = ProcessState::Ready;
                if facts.restarts > 0 {
                    self.console.say(&format!("{name} is back"));
                } else {
                    self.console.ready(&name);
                }
            }
            News::Died { how, again_in } => {
                facts.state = ProcessState::Restarting;
                facts.pid = None;
                facts.restarts = facts.restarts.saturating_add(1);
                let when =
                    if again_in < AT_ONCE { String::new() } else { format!(" in {}", seconds(again_in)) };
                self.console.say(&format!("{name} {how}; starting it again{when}"));
            }
            News::GaveUp { how, log } => {
                facts.state = ProcessState::Failed;
                facts.pid = None;
                let place = facts.log.display();
                bail!("{name} {how} and stays down; the end of {place}:\n{log}");
            }
            News::Stopped => {
                facts.state = ProcessState::Stopped;
                facts.pid = None;
            }
        }
        Ok(())
    }

    fn waiting_for(&self) -> Vec<String> {
        let waiting = self.manifest.processes.iter().filter(|facts| facts.state != ProcessState::Ready);
        waiting.map(|facts| facts.name.clone()).collect()
    }

    fn publish(&self) -> anyhow::Result<()> {
        self.manifest.write_in(&self.workshop.folder)
    }
}

/// Nobody shall find a mesh that is going or gone.
pub(crate) fn withdraw(folder: &Folder) {
    let _ = std::fs::remove_file(folder.manifest());
}
