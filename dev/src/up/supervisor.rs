//! Keeps processes running: starts them, sees that they become ready, starts again what dies, and stops all in order.
//! It decides nothing about the mesh; it reports, and whoever listens decides.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::Arc,
    time::{Duration, Instant},
};

use onsale_kit::backoff::{Backoff, BackoffConfig};
use onsale_testkit::stack::process::{Launch, Process, Signal, log_tail};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    leftovers,
    ports::{Place, Ports},
};
use onsale::mesh::{check::Check, folder::Folder};

/// How often a process is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a process may take to stop before it is ended.
const STOP_PATIENCE: Duration = Duration::from_secs(8);
/// Who ran this long did not die of its start.
const HEALTHY_AFTER: Duration = Duration::from_secs(20);
/// The first restart comes at once, nearly; who dies six times in a row stays down.
const RESTARTS: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: 6,
};
/// Exit codes after which another try would end the same way: the process refuses its settings; it cannot be executed.
const BAD_SETTINGS: i32 = 64;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// What a process is for; they stop in the opposite order, each tier when the one before is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Postgres,
    Redis,
    Outside,
    Service,
    Gateway,
    Envoy,
}

/// A process to keep running.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) tier: Tier,
    pub(crate) launch: Launch,
    /// When it is ready.
    pub(crate) check: Check,
    /// Where it listens, the main one first.
    pub(crate) places: Vec<Place>,
    /// Where its metrics and probes are.
    pub(crate) admin: Option<Place>,
    /// Asks it to stop.
    pub(crate) stop_signal: Signal,
}

/// What happened to a process.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) news: News,
}

#[derive(Debug)]
pub(crate) enum News {
    Started {
        pid: u32,
    },
    Ready,
    Died {
        how: String,
        again_in: Duration,
    },
    /// It stays down.
    GaveUp {
        how: String,
        log: String,
    },
    Stopped,
}

/// All processes that are kept.
pub(crate) struct Supervisor {
    folder: Folder,
    ports: Arc<Ports>,
    http: reqwest::Client,
    tiers: BTreeMap<Tier, Kept>,
    reporter: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
}

struct Kept {
    /// Becomes true when the tier is to stop.
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Supervisor {
    pub(crate) fn new(folder: Folder, ports: Arc<Ports>, http: reqwest::Client) -> Self {
        // More than all processes can say between two looks.
        let (reporter, reports) = mpsc::channel(1024);
        Self { folder, ports, http, tiers: BTreeMap::new(), reporter, reports }
    }

    /// Starts a process and keeps it running from now on.
    pub(crate) fn keep(&mut self, part: Part) {
        let tier = self
            .tiers
            .entry(part.tier)
            .or_insert_with(|| Kept { stop: watch::Sender::new(false), tasks: JoinSet::new() });
        let keeper = Keeper {
            folder: self.folder.clone(),
            ports: Arc::clone(&self.ports),
            http: self.http.clone(),
            part,
            reporter: self.reporter.clone(),
            stop: tier.stop.subscribe(),
        };
        tier.tasks.spawn(keeper.run());
    }

    /// The next thing that happens. Waits for ever when nothing does.
    pub(crate) async fn next(&mut self) -> Report {
        match self.reports.recv().await {
            Some(report) => report,
            // We hold a sender ourselves, so the channel is never closed.
            None => std::future::pending().await,
        }
    }

    /// Stops everything, the last tier first.
    pub(crate) async fn stop(mut self) {
        while let Some((_, mut tier)) = self.tiers.pop_last() {
            tier.stop.send_replace(true);
            while tier.tasks.join_next().await.is_some() {}
        }
    }
}

/// Keeps one process.
struct Keeper {
    folder: Folder,
    ports: Arc<Ports>,
    http: reqwest::Client,
    part: Part,
    reporter: mpsc::Sender<Report>,
    stop: watch::Receiver<bool>,
}

/// Why a process is no longer watched.
enum End {
    Died(String),
    Refused(String),
    Asked,
}

impl Keeper {
    async fn run(mut self) {
        let mut backoff = Backoff::new(RESTARTS);
        loop {
            let begun = Instant::now();
            let (how, again) = match self.live_once().await {
                End::Asked => return self.report(News::Stopped),
                End::Refused(how) => (how, None),
                End::Died(how) => {
                    if begun.elapsed() >= HEALTHY_AFTER {
                        backoff.reset();
                    }
                    (how, backoff.next_delay())
                }
            };
            let Some(again_in) = again else {
                let log = log_tail(&self.part.launch.log);
                return self.report(News::GaveUp { how, log });
            };
            self.report(News::Died { how, again_in });
            if self.stops_within(again_in).await {
                return self.report(News::Stopped);
            }
        }
    }

    /// From a start to an end.
    async fn live_once(&mut self) -> End {
        for place in self.part.places.iter().chain(&self.part.admin) {
            self.ports.release(*place);
        }
        let mut process = match Process::start(&self.part.launch) {
            Ok(process) => process,
            Err(error) => return End::Died(onsale_kit::error::Chain(&error).to_string()),
        };
        let _ = leftovers::note(&self.folder, &self.part.launch.name, process.id());
        self.report(News::Started { pid: process.id() });
        let mut ready = false;
        let end = loop {
            if let Some(status) = process.ended() {
                break end_of(status);
            }
            if !ready && self.part.check.passes(&self.http).await {
                ready = true;
                self.report(News::Ready);
            }
            if self.stops_within(LOOK_AGAIN).await {
                let _ = process.stop(self.part.stop_signal, STOP_PATIENCE).await;
                break End::Asked;
            }
        };
        leftovers::forget(&self.folder, &self.part.launch.name);
        end
    }

    /// Waits for `time`, or shorter when the process is to stop; says whether it is.
    async fn stops_within(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.stop.wait_for(|stop| *stop)).await.is_ok()
    }

    fn report(&self, news: News) {
        // Nobody listens any more while everything stops.
        let _ = self.reporter.try_send(Report { name: self.part.launch.name.clone(), news });
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(BAD_SETTINGS), _) => End::Refused("refused its settings".to_owned()),
        (Some(NOT_EXECUTABLE | NOT_FOUND), _) => End::Refused("could not be executed".to_owned()),
        (Some(code), _) => End::Died(format!("ended with exit code {code}")),
        (None, Some(signal)) => End::Died(format!("was ended by signal {signal}")),
        (None, None) => End::Died("ended".to_owned()),
    }
}
