//! The whole mesh as `onsale up` starts it, on free ports in a temporary directory, with the operations of the scenarios.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::{Duration, Instant},
};

use onsale::{front_door::FrontDoor, mesh::manifest::Manifest};
use onsale_kit::{
    auth::{MeshConfig, ServiceTokens, SigningKey},
    config::{Secret, Text},
};
use onsale_testkit::wait_until;
use onsale_types::SystemClock;
use tokio::sync::Mutex;

use super::{TIMEOUT, redis};

/// Longest time until a mesh is ready while others start too on two cores.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running mesh. The kernel ends it together with this process.
pub(crate) struct Mesh {
    directory: PathBuf,
    manifest: Manifest,
    _supervisor: Child,
}

/// Returns the mesh that all scenarios without faults share. Each scenario has its own events and customers.
pub(crate) fn shared() -> &'static Mesh {
    static MESH: LazyLock<Mesh> = LazyLock::new(|| Mesh::start(&[]));
    &MESH
}

/// Returns a mesh in which claims expire after 8 s.
pub(crate) fn with_short_claims() -> &'static Mesh {
    static MESH: LazyLock<Mesh> =
        LazyLock::new(|| Mesh::start(&["claim.claims.window=8s", "payment.payments.claim_margin=1s"]));
    &MESH
}

/// Returns the mesh for scenarios with faults; the lock admits one scenario at a time.
pub(crate) fn exclusive() -> &'static Mutex<Mesh> {
    static MESH: LazyLock<Mutex<Mesh>> = LazyLock::new(|| Mutex::new(Mesh::start(&[])));
    &MESH
}

/// Returns the path of the `onsale` binary, which is built beside this test.
fn binary() -> PathBuf {
    beside("onsale")
}

fn beside(program: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join(program)
}

impl Mesh {
    fn start(settings: &[&str]) -> Self {
        onsale_kit::tls::install_provider();
        // Keep the directory: statics are never dropped, and a stopped mesh removes it by itself (`--temporary`).
        let directory = tempfile::Builder::new().prefix("onsale-mesh-").tempdir().unwrap().keep();
        let log = directory.join("up.log");
        let output = File::create(&log).unwrap();
        let mut arguments = vec!["up", "--temporary", "--ports", "free"];
        arguments.extend(["--directory", directory.to_str().unwrap()]);
        for setting in settings {
            arguments.extend(["--set", setting]);
        }
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "SIGTERM", "--"]).arg(binary()).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut supervisor = spawn_for_good(command);
        let begun = Instant::now();
        loop {
            if let Ok(manifest) = Manifest::read(&directory) {
                return Self { directory, manifest, _supervisor: supervisor };
            }
            let log_text = || std::fs::read_to_string(&log).unwrap_or_default();
            if let Some(status) = supervisor.try_wait().unwrap() {
                panic!("onsale up ended with {status}:\n{}", log_text());
            }
            assert!(begun.elapsed() < START_TIMEOUT, "onsale up is not ready in time:\n{}", log_text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Opens a new connection to the front door.
    pub(crate) fn front_door(&self) -> FrontDoor {
        FrontDoor::at(&self.manifest.endpoints.front_door).unwrap()
    }

    pub(crate) fn mail_url(&self) -> &str {
        &self.manifest.endpoints.mail
    }

    /// Returns the number of mails sent to `email`.
    pub(crate) async fn mails_to(&self, email: &str) -> usize {
        let request = self.front_door().http().get(format!("{}/api/mails", self.mail_url()));
        let answer = request.query(&[("to", email)]).send().await.unwrap();
        let answer: serde_json::Value = answer.json().await.unwrap();
        answer["mails"].as_array().unwrap().len()
    }

    /// Runs an `onsale` command on this mesh, asserts that it succeeds, and returns its output.
    pub(crate) async fn onsale(&self, arguments: &[&str]) -> String {
        let mut command = tokio::process::Command::new(binary());
        let output = command
            .args(arguments)
            .args(["--directory", self.directory.to_str().unwrap()])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(TIMEOUT * 4, output).await.unwrap().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "onsale {}:\n{stdout}\n{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    /// Asserts that `onsale audit` finds no violation. The audit waits up to 90 s for unfinished work.
    pub(crate) async fn audit(&self) {
        let stdout = self.onsale(&["audit", "--wait", "90"]).await;
        assert!(stdout.contains("rules hold"), "{stdout}");
    }

    /// Returns a token with which services authenticate to each other.
    pub(crate) fn service_token(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.directory.join("secrets").join(name)).unwrap();
        let key = read("mesh.key");
        let jwks = SigningKey::parse(&key).unwrap().jwks();
        let config = MeshConfig {
            key: Secret::new(key),
            jwks: Text::from(jwks),
            token_lifetime: Duration::from_secs(60),
            leeway: Duration::ZERO,
        };
        let tokens = ServiceTokens::new("claim", &config, std::sync::Arc::new(SystemClock)).unwrap();
        tokens.bearer().to_str().unwrap().trim_start_matches("Bearer ").to_owned()
    }

    fn process(&self, name: &str) -> onsale::mesh::manifest::ProcessInfo {
        let manifest = Manifest::read(&self.directory).unwrap();
        manifest.processes.into_iter().find(|process| process.name == name).unwrap()
    }

    /// Returns the directory of the mesh.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a program of the mesh.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        beside(name)
    }

    /// Kills a process without warning and does not wait.
    pub(crate) fn kill(&self, name: &str) {
        self.signal(name, "KILL");
    }

    /// Freezes a process: it keeps its connections but makes no progress until it is killed.
    pub(crate) fn freeze(&self, name: &str) {
        self.signal(name, "STOP");
    }

    fn signal(&self, name: &str, signal: &str) {
        let pid = self.process(name).pid.unwrap().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Returns the number of restarts of a process.
    pub(crate) fn restarts(&self, name: &str) -> u32 {
        self.process(name).restarts
    }

    /// Returns the connection string of the database.
    pub(crate) fn postgres_url(&self) -> &str {
        &self.manifest.endpoints.postgres
    }

    /// Returns the addresses of the Redis nodes.
    pub(crate) fn redis_nodes(&self) -> &[String] {
        &self.manifest.endpoints.redis
    }

    /// Waits until a process is ready.
    pub(crate) async fn wait_for(&self, name: &str) {
        wait_until("the process is ready", TIMEOUT, || async {
            self.process(name).state == onsale::mesh::manifest::ProcessState::Ready
        })
        .await;
    }

    /// Kills a process without warning and waits until the supervisor has started a new one.
    pub(crate) async fn kill_and_await_restart(&self, name: &str) {
        let before = self.process(name);
        self.kill(name);
        wait_until("the supervisor restarts the process", TIMEOUT, || async {
            let now = self.process(name);
            now.restarts > before.restarts && now.pid.is_some() && now.pid != before.pid
        })
        .await;
    }

    /// Empties every master of the Redis Cluster.
    pub(crate) async fn flush_redis(&self) {
        for node in self.redis_nodes() {
            let answer = redis::ask(node, &["FLUSHALL"]).await;
            assert!(answer.contains("OK") || answer.contains("READONLY"), "{answer}");
        }
    }
}

/// Spawns a child from a thread that lives as long as this process. The kernel sends the parent-death signal when the
/// *thread* that forked ends, and the thread of a test ends with the test.
fn spawn_for_good(mut command: Command) -> Child {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        sender.send(command.spawn().unwrap()).unwrap();
        loop {
            std::thread::park();
        }
    });
    receiver.recv().unwrap()
}
