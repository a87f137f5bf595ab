//! Child processes that cannot outlive us: programs found by name, started from one long-lived thread, with a
//! parent-death signal, and directories that vanish when we do.
//! Nothing here may rely on a destructor alone: a killed process runs none.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use super::Error;

/// Ports below the range the kernel hands out to outgoing connections, so that none of those takes ours between
/// the look and the bind.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How often a wait for a condition looks again.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The signals we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Postgres' immediate shutdown: its children end with it and its shared memory is given back.
    Quit,
    /// Postgres' fast shutdown: sessions end, what is committed is kept.
    Interrupt,
    /// Asks a command to end.
    Terminate,
    /// The one signal that also ends a frozen process.
    Kill,
    /// Freezes the process.
    Stop,
    /// Thaws it.
    Continue,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Quit => "QUIT",
            Self::Interrupt => "INT",
            Self::Terminate => "TERM",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Continue => "CONT",
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// For messages.
    pub name: String,
    /// The program file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables besides those it inherits. Ours (`ONSALE_…`) it does not inherit: what it is told stands here.
    pub environment: Vec<(String, String)>,
    /// The account to run under; `None` is our own.
    pub user: Option<&'static str>,
    /// Takes both outputs, at its end.
    pub log: PathBuf,
    /// Sent by the kernel when we end, and by us when the handle is dropped.
    pub death_signal: Signal,
}

/// A running child. Dropping it ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    death_signal: Signal,
}

impl Process {
    /// Starts it.
    pub fn start(launch: &Launch) -> Result<Self, Error> {
        let failed = |source| Error::Start { name: launch.name.clone(), source };
        let log = File::options().create(true).append(true).open(&launch.log).map_err(failed)?;
        let log_again = log.try_clone().map_err(failed)?;
        let mut command = guarded(&launch.program, launch.user, launch.death_signal)?;
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for ours in inherited.filter(|name| name.as_encoded_bytes().starts_with(b"ONSALE_")) {
            command.env_remove(ours);
        }
        command.args(&launch.arguments).envs(launch.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log).stderr(log_again);
        let child = spawn(command).map_err(failed)?;
        Ok(Self {
            name: launch.name.clone(),
            child,
            log: launch.log.clone(),
            death_signal: launch.death_signal,
        })
    }

    /// The error of a process that should run and does not; `None` while it runs.
    pub(crate) fn failure(&mut self) -> Option<Error> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => Some(Error::Ended { name: self.name.clone(), log: log_tail(&self.log) }),
        }
    }

    /// The id the system knows it by.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        send(self.child.id(), signal)
    }

    /// Sends `signal`, waits for the end, and kills what has not ended within `timeout`.
    pub async fn stop(mut self, signal: Signal, timeout: Duration) -> Result<(), Error> {
        if self.is_running() {
            self.signal(signal)?;
        }
        let end = Instant::now() + timeout;
        while self.is_running() && Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // Dropping `self` ends what is still there.
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        let _ = send(self.child.id(), self.death_signal);
        let end = Instant::now() + Duration::from_secs(5);
        while self.is_running() && Instant::now() < end {
            // A destructor has no runtime to wait with.
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that is removed when the handle is dropped, and also when this process ends in any other way:
/// a shell waits at the other end of a pipe that only we hold open.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    remover: Child,
}

impl Scratch {
    /// Makes it, under the system's folder for such.
    pub fn create(name: &str) -> Result<Self, Error> {
        let failed = |source| Error::Directory { source };
        let path = tempfile::Builder::new()
            .prefix(&format!("onsale-{name}-"))
            // Another account (postgres) must be able to walk through.
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .map_err(failed)?
            .keep();
        let mut command = Command::new("sh");
        // A server that is still ending may write while we remove, so removal is tried again for a while.
        let script = r#"cat >/dev/null; n=0; while [ $n -lt 100 ]; do rm -rf -- "$1" 2>/dev/null && exit 0; n=$((n+1)); sleep 0.1; done"#;
        command.arg("-c").arg(script).arg("sh").arg(&path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let remover = spawn(command).map_err(failed)?;
        Ok(Self { path, remover })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Closing the pipe is the order to remove.
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}

/// Finds `program` on the path, or else among Debian's Postgres programs, the newest version first.
pub fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    // Debian keeps Postgres' server programs off the path, one directory per version.
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    directories.extend(versions.into_iter().rev().map(|(_, directory)| directory));
    directories
        .into_iter()
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or(Error::MissingProgram { program, package })
}

/// A loopback port that nobody listens on. Somebody may take it before we do; then the server ends at once and the
/// caller takes another.
pub fn free_port() -> Result<u16, Error> {
    for _ in 0..1_000 {
        let port = rand::random_range(PORTS);
        if TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoPort)
}

/// Whether we are the one account under which Postgres refuses to run.
#[must_use]
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Runs a short command to its end.
pub fn run_to_end(mut command: Command, name: &str) -> Result<(), Error> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::Start { name: name.to_owned(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let log =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(Error::Ended { name: name.to_owned(), log })
}

/// A command whose process dies with us, runs under `user`, and is out of reach of the terminal's Ctrl-C: we end it
/// ourselves, in order.
pub fn guarded(program: &Path, user: Option<&str>, death_signal: Signal) -> Result<Command, Error> {
    let mut command = Command::new(find_program("setpriv", "util-linux")?);
    command.arg("--pdeathsig").arg(format!("SIG{}", death_signal.name()));
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--init-groups"]);
    }
    command.arg("--").arg(program).process_group(0);
    Ok(command)
}

/// Starts `command` from the spawner thread. The kernel ties the parent-death signal to the *thread* that forked, so
/// a child started from a test's thread would die with that test.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let gone = || io::Error::other("the thread that keeps child processes has ended");
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Signals a child started by [`guarded`] and all that it started itself.
pub(crate) fn send_to_group(pid: u32, signal: Signal) -> Result<(), Error> {
    kill(signal, &format!("-{pid}"))
}

/// Signals one process.
pub fn send(pid: u32, signal: Signal) -> Result<(), Error> {
    kill(signal, &pid.to_string())
}

/// The shell's own `kill`: there without any package, and without an unsafe call of ours.
fn kill(signal: Signal, target: &str) -> Result<(), Error> {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", signal.name(), target]);
    run_to_end(command, "kill")
}

/// The end of a log, enough to see why a server did not start.
#[must_use]
pub fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(15)).copied().collect::<Vec<_>>().join("\n")
}
