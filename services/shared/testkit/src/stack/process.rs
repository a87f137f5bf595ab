//! Child processes and temporary directories that end with this process. Children are started from one long-lived thread
//! with a parent-death signal. Code in this file must not rely on a destructor alone: a killed process runs none.

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

/// Ports below the kernel's range for outgoing connections, so that none of those takes a port between our check and the
/// bind.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Pause between two checks of a condition.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Signals that the test kit sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Postgres' immediate shutdown: its children end too and its shared memory is released.
    Quit,
    /// Postgres' fast shutdown: sessions end and committed data is kept.
    Interrupt,
    /// Asks a process to end.
    Terminate,
    /// Ends a process immediately, even a frozen one.
    Kill,
    /// Freezes a process until [`Signal::Continue`].
    Stop,
    /// Resumes a frozen process.
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

/// Command line, environment and log of a child process.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Name used in error messages.
    pub name: String,
    /// Path of the program file.
    pub program: PathBuf,
    /// Arguments without the program itself.
    pub arguments: Vec<String>,
    /// Variables added to the inherited environment. Variables `ONSALE_…` are not inherited.
    pub environment: Vec<(String, String)>,
    /// Account of the process. `None`: our own.
    pub user: Option<&'static str>,
    /// File to which standard output and error are appended.
    pub log: PathBuf,
    /// Signal sent by the kernel when this process ends, and by us when the handle is dropped.
    pub death_signal: Signal,
}

/// A child process. Dropping the handle ends it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    death_signal: Signal,
}

impl Process {
    /// Starts the process described by `launch`.
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

    /// Returns an error with the end of the log if the process has ended; `None` while it runs.
    pub(crate) fn failure(&mut self) -> Option<Error> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => Some(Error::Ended { name: self.name.clone(), log: log_tail(&self.log) }),
        }
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status, or `None` while the process runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        send(self.child.id(), signal)
    }

    /// Sends `signal` and waits for the process to end. After `timeout` it is ended as by dropping the handle.
    pub async fn stop(mut self, signal: Signal, timeout: Duration) -> Result<(), Error> {
        if self.is_running() {
            self.signal(signal)?;
        }
        let end = Instant::now() + timeout;
        while self.is_running() && Instant::now() < end {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        // Dropping `self` ends a process that is still running.
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

/// A temporary directory that is removed when the handle is dropped or when this process ends in any way: a shell that
/// removes it waits at the other end of a pipe that only this process holds open.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    remover: Child,
}

impl Scratch {
    /// Creates the directory under the system's temporary directory.
    pub fn create(name: &str) -> Result<Self, Error> {
        let failed = |source| Error::Directory { source };
        let path = tempfile::Builder::new()
            .prefix(&format!("onsale-{name}-"))
            // The account `postgres` must be able to enter the directory.
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .tempdir()
            .map_err(failed)?
            .keep();
        let mut command = Command::new("sh");
        // A stopping server may still write during the removal, so the script retries for about 10 s.
        let script = r#"cat >/dev/null; n=0; while [ $n -lt 100 ]; do rm -rf -- "$1" 2>/dev/null && exit 0; n=$((n+1)); sleep 0.1; done"#;
        command.arg("-c").arg(script).arg("sh").arg(&path);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let remover = spawn(command).map_err(failed)?;
        Ok(Self { path, remover })
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Closing the pipe starts the removal.
        drop(self.remover.stdin.take());
        let _ = self.remover.wait();
    }
}

/// Finds `program` on the `PATH`, or else among Debian's Postgres programs, newest version first.
pub fn find_program(program: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    // Debian keeps the server programs of Postgres outside the `PATH`, in one directory per version.
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

/// Returns a loopback port on which no process listens. Another process may take it first: then the server ends
/// immediately and the caller retries with another port.
pub fn free_port() -> Result<u16, Error> {
    for _ in 0..1_000 {
        let port = rand::random_range(PORTS);
        if TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoPort)
}

/// Returns true if this process runs as root.
#[must_use]
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

/// Runs a short command to its end; fails with its output if it exits with an error.
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

/// Returns a command whose process ends with this one, runs as `user`, and does not receive the terminal's Ctrl-C, so that
/// we can stop processes in order.
pub fn guarded(program: &Path, user: Option<&str>, death_signal: Signal) -> Result<Command, Error> {
    let mut command = Command::new(find_program("setpriv", "util-linux")?);
    command.arg("--pdeathsig").arg(format!("SIG{}", death_signal.name()));
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--init-groups"]);
    }
    command.arg("--").arg(program).process_group(0);
    Ok(command)
}

/// Starts `command` from a thread that lives as long as this process. The kernel ties the parent-death signal to the
/// *thread* that forked, so a child started from a test's thread would end with that test.
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
    let gone = || io::Error::other("the thread that spawns child processes has ended");
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Sends a signal to a child started by [`guarded`] and to the children of that child.
pub(crate) fn send_to_group(pid: u32, signal: Signal) -> Result<(), Error> {
    kill(signal, &format!("-{pid}"))
}

/// Sends a signal to one process.
pub fn send(pid: u32, signal: Signal) -> Result<(), Error> {
    kill(signal, &pid.to_string())
}

/// Runs the shell's built-in `kill`, which needs neither a package nor unsafe code.
fn kill(signal: Signal, target: &str) -> Result<(), Error> {
    let mut command = Command::new("sh");
    command.args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", signal.name(), target]);
    run_to_end(command, "kill")
}

/// Returns the last 15 lines of a log, enough to see why a server did not start.
#[must_use]
pub fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.iter().skip(lines.len().saturating_sub(15)).copied().collect::<Vec<_>>().join("\n")
}
