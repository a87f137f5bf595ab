//! Process supervisor: starts processes, checks their readiness, restarts those that exit and stops all in reverse order of
//! their tiers. It reports every change and leaves decisions about the mesh to the receiver of the reports.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use onsale::mesh::{check::Check, folder::Folder};
use onsale_kit::backoff::{Backoff, BackoffConfig};
use onsale_testkit::stack::process::{Launch, Process, Signal, log_tail};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    leftovers,
    ports::{Port, Ports},
};

/// Interval between two checks of a process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a process gets to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);
/// Run time after which an exit no longer counts as a failed start, so that the backoff starts over.
const HEALTHY_AFTER: Duration = Duration::from_secs(20);
/// Random delays of restarts, the first at most 200 ms. A process whose sixth start in a row fails stays down.
const RESTARTS: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: 6,
};
/// Exit codes after which a restart would end the same way: the process refuses its settings, or it cannot be executed.
const BAD_SETTINGS: i32 = 64;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// Tiers in start order. They stop in reverse order, each after all processes of the tier above have stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Postgres,
    Redis,
    Sandbox,
    Service,
    Gateway,
    Envoy,
}

/// A process to start and keep running.
#[derive(Clone, Debug)]
pub(crate) struct ProcessSpec {
    pub(crate) tier: Tier,
    pub(crate) launch: Launch,
    pub(crate) check: Check,
    /// Listening ports, the main one first.
    pub(crate) ports: Vec<Port>,
    /// Port of metrics and probes. `None` if the process has none.
    pub(crate) admin: Option<Port>,
    /// Signal that requests an orderly stop.
    pub(crate) stop_signal: Signal,
}

/// A change in the state of one process.
#[derive(Debug)]
pub(crate) struct ProcessReport {
    pub(crate) name: String,
    pub(crate) event: ProcessEvent,
}

#[derive(Debug)]
pub(crate) enum ProcessEvent {
    Started {
        pid: u32,
    },
    Ready,
    Exited {
        how: String,
        restart_in: Duration,
    },
    /// The process stays down: its restarts are used up, or a restart could not help.
    Failed {
        how: String,
        log: String,
    },
    Stopped,
}

/// Supervisor of all processes of a mesh.
pub(crate) struct Supervisor {
    folder: Folder,
    ports: Arc<Ports>,
    http: reqwest::Client,
    tiers: BTreeMap<Tier, TierTasks>,
    reporter: mpsc::Sender<ProcessReport>,
    reports: mpsc::Receiver<ProcessReport>,
}

struct TierTasks {
    /// Becomes true when the processes of the tier must stop.
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Supervisor {
    pub(crate) fn new(folder: Folder, ports: Arc<Ports>, http: reqwest::Client) -> Self {
        // Far more than 17 processes report while the receiver handles one report.
        let (reporter, reports) = mpsc::channel(1024);
        Self { folder, ports, http, tiers: BTreeMap::new(), reporter, reports }
    }

    /// Starts a process and keeps it running from now on.
    pub(crate) fn supervise(&mut self, spec: ProcessSpec) {
        let tier = self
            .tiers
            .entry(spec.tier)
            .or_insert_with(|| TierTasks { stop: watch::Sender::new(false), tasks: JoinSet::new() });
        let keeper = ProcessKeeper {
            folder: self.folder.clone(),
            ports: Arc::clone(&self.ports),
            http: self.http.clone(),
            spec,
            reporter: self.reporter.clone(),
            stop: tier.stop.subscribe(),
        };
        tier.tasks.spawn(keeper.run());
    }

    /// Waits for the next report.
    pub(crate) async fn next(&mut self) -> ProcessReport {
        match self.reports.recv().await {
            Some(report) => report,
            // `self.reporter` keeps the channel open.
            None => std::future::pending().await,
        }
    }

    /// Stops every process, the last tier first.
    pub(crate) async fn stop(mut self) {
        while let Some((_, mut tier)) = self.tiers.pop_last() {
            tier.stop.send_replace(true);
            while tier.tasks.join_next().await.is_some() {}
        }
    }
}

/// Keeps one process running.
struct ProcessKeeper {
    folder: Folder,
    ports: Arc<Ports>,
    http: reqwest::Client,
    spec: ProcessSpec,
    reporter: mpsc::Sender<ProcessReport>,
    stop: watch::Receiver<bool>,
}

/// Outcome of one run of a process. The text describes the exit in a message, after the process's name.
enum RunEnd {
    Exited(String),
    NoRestart(String),
    StopRequested,
}

impl ProcessKeeper {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RESTARTS);
        loop {
            let begun = Instant::now();
            let (how, again) = match self.run_once().await {
                RunEnd::StopRequested => return self.report(ProcessEvent::Stopped),
                RunEnd::NoRestart(how) => (how, None),
                RunEnd::Exited(how) => {
                    if begun.elapsed() >= HEALTHY_AFTER {
                        backoff.reset();
                    }
                    (how, backoff.next_delay())
                }
            };
            let Some(restart_in) = again else {
                let log = log_tail(&self.spec.launch.log);
                return self.report(ProcessEvent::Failed { how, log });
            };
            self.report(ProcessEvent::Exited { how, restart_in });
            if self.stops_within(restart_in).await {
                return self.report(ProcessEvent::Stopped);
            }
        }
    }

    /// Starts the process once and waits until it exits or must stop.
    async fn run_once(&mut self) -> RunEnd {
        for port in self.spec.ports.iter().chain(&self.spec.admin) {
            self.ports.release(*port);
        }
        let mut process = match Process::start(&self.spec.launch) {
            Ok(process) => process,
            Err(error) => return RunEnd::Exited(onsale_kit::error::Chain(&error).to_string()),
        };
        let _ = leftovers::record(&self.folder, &self.spec.launch.name, process.id());
        self.report(ProcessEvent::Started { pid: process.id() });
        let mut ready = false;
        let end = loop {
            if let Some(status) = process.ended() {
                break end_of(status);
            }
            if !ready && self.spec.check.passes(&self.http).await {
                ready = true;
                self.report(ProcessEvent::Ready);
            }
            if self.stops_within(POLL_INTERVAL).await {
                let _ = process.stop(self.spec.stop_signal, STOP_TIMEOUT).await;
                break RunEnd::StopRequested;
            }
        };
        leftovers::remove_record(&self.folder, &self.spec.launch.name);
        end
    }

    /// Waits for `time`. Returns true early if the process must stop.
    async fn stops_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stop.wait_for(|stop| *stop)).await.is_ok()
    }

    fn report(&self, event: ProcessEvent) {
        // The receiver is gone while the supervisor stops.
        let _ = self.reporter.try_send(ProcessReport { name: self.spec.launch.name.clone(), event });
    }
}

fn end_of(status: ExitStatus) -> RunEnd {
    match (status.code(), status.signal()) {
        (Some(BAD_SETTINGS), _) => RunEnd::NoRestart("refused its settings".to_owned()),
        (Some(NOT_EXECUTABLE | NOT_FOUND), _) => RunEnd::NoRestart("could not be executed".to_owned()),
        (Some(code), _) => RunEnd::Exited(format!("exited with code {code}")),
        (None, Some(signal)) => RunEnd::Exited(format!("was killed by signal {signal}")),
        (None, None) => RunEnd::Exited("exited".to_owned()),
    }
}
