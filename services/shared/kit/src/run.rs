//! Life cycle of a service process: settings, telemetry, build, serve, drain, exit.
//!
//! A service's `main` is one call of [`run`]. Exit codes, for process supervisors:
//!
//! | code | meaning | restart? |
//! |---|---|---|
//! | 0 | stopped on request after all work had finished | optional |
//! | 64 | bad settings; no port was opened | only after they are fixed |
//! | 70 | could not be built or started | yes, with backoff |
//! | 75 | stopped on request, but unfinished work was aborted near the end of `server.drain.total` | optional |
//! | 130 | stopped immediately by a second signal | optional |

use std::{error::Error, process::ExitCode, sync::Arc};

use onsale_types::SystemClock;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
};

use crate::{
    config::{self, ChassisConfig, Environment, ServiceConfig},
    error::Chain,
    server::Chassis,
    telemetry::Telemetry,
};

/// Time for the export of the last traces: one part of this many of `server.drain.total`.
const FLUSH_SHARE: u32 = 10;

/// Any error of a service's `build` function.
pub type BuildError = Box<dyn Error + Send + Sync>;

/// The outcome of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Stopped on request after all work had finished.
    Clean,
    /// The settings were refused; no port was opened.
    BadConfig,
    /// The service could not be built or started.
    Failed,
    /// Stopped on request, but unfinished work was aborted when the drain time ran out.
    DrainCut,
    /// Stopped immediately by a second signal.
    Interrupted,
}

impl Exit {
    /// Returns the exit code, from `sysexits.h` where that has a matching one.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::BadConfig => 64,
            Self::Failed => 70,
            Self::DrainCut => 75,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Runs `service` until SIGTERM or SIGINT. `defaults` is the text of its `config.default.toml`. `build` receives the
/// service's settings and adds gRPC services, checks and background tasks to the chassis.
pub fn run<C, B>(service: &'static str, defaults: &str, build: B) -> ExitCode
where
    C: ServiceConfig,
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    run_in(service, defaults, &Environment::of_process(), build).into()
}

/// Does the same as [`run`] with a given environment instead of the process's own.
pub fn run_in<C, B>(service: &'static str, defaults: &str, environment: &Environment, build: B) -> Exit
where
    C: ServiceConfig,
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    crate::tls::install_provider();
    let (chassis, own) = match config::load::<C>(service, defaults, environment) {
        Ok(loaded) => loaded,
        Err(error) => return report_failure(service, &error, Exit::BadConfig),
    };
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return report_failure(service, &error, Exit::Failed),
    };
    let exit = runtime.block_on(run_with_telemetry(service, chassis, own, build));
    // Tasks that still run were aborted or ignored the end of their token.
    runtime.shutdown_background();
    exit
}

async fn run_with_telemetry<C, B>(service: &'static str, config: ChassisConfig, own: C, build: B) -> Exit
where
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    let telemetry = match Telemetry::init(service, &config.telemetry) {
        Ok(telemetry) => telemetry,
        Err(error) => return report_failure(service, &error, Exit::Failed),
    };
    let flush_time_max = config.server.drain.total / FLUSH_SHARE;
    let exit = match serve(service, config, own, build).await {
        Ok(exit) => exit,
        Err(error) => {
            tracing::error!(error = %Chain(&*error), "failed to start");
            report_failure(service, &*error, Exit::Failed)
        }
    };
    // On a blocking thread: the call blocks, and the export may need the runtime's own threads.
    let flushed = tokio::task::spawn_blocking(move || telemetry.shutdown(flush_time_max));
    let _ = tokio::time::timeout(flush_time_max, flushed).await;
    exit
}

async fn serve<C, B>(
    service: &'static str,
    config: ChassisConfig,
    own: C,
    build: B,
) -> Result<Exit, BuildError>
where
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    // Installed before the build, so that a signal during the build is not lost.
    let mut signals = Signals::new()?;
    let mut chassis = Chassis::new(service, config, Arc::new(SystemClock))?;
    tokio::select! {
        built = build(own, &mut chassis) => built?,
        () = signals.next() => return Ok(Exit::Clean),
    }
    let server = chassis.start().await?;
    signals.next().await;
    tokio::select! {
        drained = server.shutdown() => Ok(if drained.is_clean() { Exit::Clean } else { Exit::DrainCut }),
        () = signals.next() => {
            tracing::warn!("second signal received, stopping immediately");
            Ok(Exit::Interrupted)
        }
    }
}

/// The two requests to stop: SIGTERM from an orchestrator and SIGINT from a terminal.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, std::io::Error> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Prints the error to stderr, for a person who started the process by hand, and returns `exit`.
#[expect(clippy::print_stderr, reason = "there may be no log yet, and a refused start must be seen")]
fn report_failure(service: &str, error: &(dyn Error + 'static), exit: Exit) -> Exit {
    eprintln!("{service}: {}", Chain(error));
    exit
}
