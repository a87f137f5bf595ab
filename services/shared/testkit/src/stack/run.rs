//! Runs a command with a stack of its own: the servers start before it and are gone after it.

use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use super::process::{self, POLL_INTERVAL, Signal};
use super::{
    Error, POSTGRES_VARIABLE, PostgresServer, PostgresServerConfig, REDIS_VARIABLE, RedisCluster,
    RedisClusterConfig,
};

/// How long an interrupted command may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the stack, runs `command` with its addresses in the environment, removes everything, and answers with the
/// command's exit code; an interrupt ends the command first.
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
                // The whole group: the command's own children too.
                process::send_to_group(child.id(), Signal::Terminate)?;
                ends_at.get_or_insert_with(|| tokio::time::Instant::now() + STOP_TIMEOUT);
            }
        }
        if ends_at.is_some_and(|end| tokio::time::Instant::now() >= end) {
            process::send_to_group(child.id(), Signal::Kill)?;
        }
    }
}

/// As a shell would report it.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// The ways in which a command is asked to end.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: SignalStream,
    terminate: SignalStream,
    hang_up: SignalStream,
}

impl Interrupts {
    /// Takes them from now on, instead of dying of them.
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

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
