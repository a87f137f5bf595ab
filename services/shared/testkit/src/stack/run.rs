//! Runs a command with a private stack: the servers start before the command and are removed after it.

use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use super::process::{self, POLL_INTERVAL, Signal};
use super::{
    Error, POSTGRES_VARIABLE, PostgresServer, PostgresServerConfig, REDIS_VARIABLE, RedisCluster,
    RedisClusterConfig,
};

/// Longest time for an interrupted command to end; then its process group is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the stack, runs `command` with the addresses in its environment, removes the stack, and returns the exit code of
/// the command. An interrupt ends the command first. An empty command returns 64.
pub async fn run_command(command: &[String]) -> Result<ExitCode, Error> {
    let mut interrupts = Interrupts::listen()?;
    let (postgres, redis) = tokio::try_join!(
        PostgresServer::start(PostgresServerConfig::default()),
        RedisCluster::start(RedisClusterConfig::default()),
    )?;
    let nodes: Vec<String> = redis.addresses().iter().map(ToString::to_string).collect();
    let exit = supervise(command, &postgres.address().to_string(), &nodes.join(","), &mut interrupts).await;
    tokio::try_join!(postgres.stop(), redis.stop())?;
    exit
}

async fn supervise(
    command: &[String],
    postgres: &str,
    redis: &str,
    interrupts: &mut Interrupts,
) -> Result<ExitCode, Error> {
    let Some((program, arguments)) = command.split_first() else { return Ok(ExitCode::from(64)) };
    let failed = |source| Error::Start { name: program.clone(), source };
    let mut child = process::guarded(program.as_ref(), None, Signal::Terminate)?;
    child.args(arguments).env(POSTGRES_VARIABLE, postgres).env(REDIS_VARIABLE, redis);
    let mut child = process::spawn(child).map_err(failed)?;
    let mut ends_at = None;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(exit_code(status));
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = interrupts.next() => {
                // Signal the whole group, so that children of the command end too.
                process::send_to_group(child.id(), Signal::Terminate)?;
                ends_at.get_or_insert_with(|| tokio::time::Instant::now() + STOP_TIMEOUT);
            }
        }
        if ends_at.is_some_and(|end| tokio::time::Instant::now() >= end) {
            process::send_to_group(child.id(), Signal::Kill)?;
        }
    }
}

/// Returns the exit code that a shell would report: 128 plus the signal number for a killed process.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Receiver of the signals INT, TERM and HUP.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: SignalStream,
    terminate: SignalStream,
    hang_up: SignalStream,
}

impl Interrupts {
    /// Starts to receive the signals, which no longer end this process.
    pub fn listen() -> Result<Self, Error> {
        let open = |kind| {
            signal(kind).map_err(|source| Error::Start { name: "the signal handler".to_owned(), source })
        };
        Ok(Self {
            interrupt: open(SignalKind::interrupt())?,
            terminate: open(SignalKind::terminate())?,
            hang_up: open(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
