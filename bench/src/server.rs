//! Measured server in a process of its own: the empty call in bare tonic or through the chassis.

use std::{net::SocketAddr, process::Stdio, sync::Arc};

use anyhow::Context;
use onsale_kit::{
    config::{self, NoConfig, Secret, Text},
    server::Chassis,
    telemetry::Telemetry,
};
use onsale_proto::auth::v1::Role;
use onsale_testkit::{
    echo::{self, EchoServer, EchoService},
    service::environment,
    tokens::TestIssuer,
};
use onsale_types::SystemClock;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
};

/// Layers in front of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerStack {
    Bare,
    Kit,
}

/// Keys that a server trusts instead of keys of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct Trusted {
    /// Public keys for user tokens
    #[arg(long)]
    jwks: Option<String>,
    /// Public keys for service tokens
    #[arg(long, requires = "mesh_key")]
    mesh_jwks: Option<String>,
    /// Private key of --mesh-jwks, because a server must be part of its own mesh
    #[arg(long, requires = "mesh_jwks")]
    mesh_key: Option<String>,
}

/// First line of the server's output, for the process that started it.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    address: SocketAddr,
    /// Value of the `authorization` header that callers send.
    authorization: String,
}

/// A server in another process, which ends when this handle is dropped.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    /// Reads and discards the server's log, so that the server never blocks on its output.
    log: JoinHandle<()>,
    pub(crate) address: SocketAddr,
    /// Value of the `authorization` header that callers send.
    pub(crate) authorization: String,
}

impl ServerProcess {
    /// Starts this executable again as a server. With `trusted` the server accepts user and service tokens of that issuer instead
    /// of its own.
    pub(crate) async fn start(through: ServerStack, trusted: Option<&TestIssuer>) -> anyhow::Result<Self> {
        let name = match through {
            ServerStack::Bare => "bare",
            ServerStack::Kit => "kit",
        };
        let trusted = trusted.map(|issuer| {
            // These keys are valid for one benchmark, so it does no harm that other accounts can see them.
            [
                ("--jwks", issuer.jwks()),
                ("--mesh-jwks", issuer.mesh_jwks()),
                ("--mesh-key", issuer.mesh_key()),
            ]
        });
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "serve-empty", "--through", name])
            .args(trusted.iter().flatten().map(|(option, value)| format!("{option}={value}")))
            // The pipe closes when this process ends, however it ends; the server then exits.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the measured server")?;
        let stdout = child.stdout.take().context("the output of the measured server is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let hello = hello(&mut lines).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the server's output, and `stop` waits for it"
        )]
        let log = tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
        Ok(Self { child, log, address: hello.address, authorization: hello.authorization })
    }

    /// Kills the process and waits for its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("failed to stop the measured server")?;
        self.log.await.context("failed to read the log of the measured server")
    }
}

/// Reads lines until the server's address, which may follow lines of its log.
async fn hello(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<Hello> {
    while let Some(line) =
        lines.next_line().await.context("failed to read the output of the measured server")?
    {
        if let Ok(hello) = serde_json::from_str(&line) {
            return Ok(hello);
        }
    }
    anyhow::bail!("the measured server ended before it printed its address")
}

/// Serves until standard input ends.
pub(crate) async fn serve(through: ServerStack, trusted: Trusted) -> anyhow::Result<()> {
    let issuer = TestIssuer::new();
    let authorization = format!("Bearer {}", issuer.token(Role::Customer));
    match through {
        ServerStack::Bare => {
            let server =
                EchoServer::start(EchoService::default(), SocketAddr::from(([127, 0, 0, 1], 0))).await?;
            say_hello(&Hello { address: server.address(), authorization })?;
            input_ends().await;
            server.stop().await;
        }
        ServerStack::Kit => {
            let (mut config, NoConfig {}) =
                config::load::<NoConfig>("bench", "", &environment(&issuer, &[]))?;
            config.auth = issuer.auth_config();
            if let (Some(jwks), Some(issuer)) = (trusted.jwks, config.auth.issuers.first_mut()) {
                issuer.jwks = Text::from(jwks);
            }
            if let (Some(jwks), Some(key)) = (trusted.mesh_jwks, trusted.mesh_key) {
                config.auth.mesh.jwks = Text::from(jwks);
                config.auth.mesh.key = Secret::new(key);
            }
            // Telemetry is on, as in production.
            let telemetry = Telemetry::init("bench", &config.telemetry)?;
            let mut chassis = Chassis::new("bench", config, Arc::new(SystemClock))?;
            chassis.add_descriptors(echo::DESCRIPTORS).add_service(EchoService::default().into_server());
            let server = chassis.start().await?;
            say_hello(&Hello { address: server.address(), authorization })?;
            input_ends().await;
            server.shutdown().await;
            drop(telemetry);
        }
    }
    Ok(())
}

fn say_hello(hello: &Hello) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(hello)?);
    Ok(())
}

async fn input_ends() {
    let mut nothing = Vec::new();
    // A read error counts as the end of input.
    let _ = tokio::io::stdin().read_to_end(&mut nothing).await;
}
