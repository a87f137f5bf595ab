//! The life of a service's process: settings, telemetry, build, serve, drain, exit.
//!
//! A service's `main` is one call of [`run`]. Exit codes, for whoever restarts it:
//!
//! | code | meaning | restart? |
//! |---|---|---|
//! | 0 | stopped when asked to, everything finished | as you like |
//! | 64 | bad settings; no port was opened | not before they are fixed |
//! | 70 | could not be built or started | yes, with backoff |
//! | 75 | stopped when asked to, but something had to be cut after `server.drain.total` | as you like |
//! | 130 | a second signal: stopped at once | as you like |

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

/// The last traces may take this share of the time for the drain, which the server leaves them.
const FLUSH_SHARE: u32 = 10;

/// Whatever went wrong in a service's `build`.
pub type BuildError = Box<dyn Error + Send + Sync>;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Stopped when asked to, everything finished.
    Clean,
    /// Bad settings.
    BadConfig,
    /// Could not be built or started.
    Failed,
    /// Stopped when asked to, but not everything finished in time.
    DrainCut,
    /// Stopped at once by a second signal.
    Interrupted,
}

impl Exit {
    /// The process's exit code; after sysexits.h where it has one.
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

/// Runs `service` until SIGTERM or SIGINT. `defaults` is its `config.default.toml`; `build` takes its settings and adds
/// its gRPC services, checks and background tasks to the chassis.
pub fn run<C, B>(service: &'static str, defaults: &str, build: B) -> ExitCode
where
    C: ServiceConfig,
    B: AsyncFnOnce(C, &mut Chassis) -> Result<(), BuildError>,
{
    run_in(service, defaults, &Environment::of_process(), build).into()
}

/// As [`run`], in a given environment.
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
    // Whatever still runs by now was asked to end and did not.
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
    // Blocks while it sends, so not on a thread that the sending may need.
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
    // Taken before the build: a signal that comes meanwhile must not be lost.
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
            tracing::warn!("a second signal: stopping at once");
            Ok(Exit::Interrupted)
        }
    }
}

/// The two ways a process is asked to stop: by an orchestrator, and at a terminal.
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

/// Says why the process ends, where someone who started it by hand will look.
#[expect(clippy::print_stderr, reason = "there may be no log yet, and a refused start must be seen")]
fn report_failure(service: &str, error: &(dyn Error + 'static), exit: Exit) -> Exit {
    eprintln!("{service}: {}", Chain(error));
    exit
}
