//! The server a benchmark measures, in a process of its own: the empty call in bare tonic or through the chassis.

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

/// What stands in front of the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Through {
    /// Nothing but tonic.
    Bare,
    /// The whole chassis.
    Kit,
}

/// Whom a server trusts instead of itself.
#[derive(Debug, clap::Args)]
pub(crate) struct Trusted {
    /// Keys of who signs people's tokens.
    #[arg(long)]
    jwks: Option<String>,
    /// Keys of who signs services' tokens.
    #[arg(long, requires = "mesh_key")]
    mesh_jwks: Option<String>,
    /// The private one of those: a server has to be part of its own mesh.
    #[arg(long, requires = "mesh_jwks")]
    mesh_key: Option<String>,
}

/// What the server tells the process that started it.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    address: SocketAddr,
    /// The value of the `authorization` header that callers send.
    authorization: String,
}

/// A server in another process. It ends with this handle.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    /// Reads what the server logs, so that it never waits for us to.
    log: JoinHandle<()>,
    /// Where it answers.
    pub(crate) address: SocketAddr,
    /// The value of the `authorization` header that callers send.
    pub(crate) authorization: String,
}

impl ServerProcess {
    /// Starts this program again as a server.
    ///
    /// With `trusted` it takes the tokens of that issuer, people's and services', and not its own.
    pub(crate) async fn start(through: Through, trusted: Option<&TestIssuer>) -> anyhow::Result<Self> {
        let name = match through {
            Through::Bare => "bare",
            Through::Kit => "kit",
        };
        let trusted = trusted.map(|issuer| {
            // Keys that live as long as the benchmark; nobody gains anything by seeing them.
            [
                ("--jwks", issuer.jwks()),
                ("--mesh-jwks", issuer.mesh_jwks()),
                ("--mesh-key", issuer.mesh_key()),
            ]
        });
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "serve-empty", "--through", name])
            .args(trusted.iter().flatten().map(|(option, value)| format!("{option}={value}")))
            // Its end of the pipe closes when we end, however we do; the server takes that as its own end.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the server's process")?;
        let stdout = child.stdout.take().context("the server's output is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let hello = hello(&mut lines).await?;
        #[expect(
            clippy::disallowed_methods,
            reason = "ends with the server's output, and `stop` waits for it"
        )]
        let log = tokio::spawn(async move { while let Ok(Some(_line)) = lines.next_line().await {} });
        Ok(Self { child, log, address: hello.address, authorization: hello.authorization })
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("failed to end the server's process")?;
        self.log.await.context("failed to read the server's log")
    }
}

/// Finds the line between those of the log in which the server says where it is.
async fn hello(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<Hello> {
    while let Some(line) = lines.next_line().await.context("failed to read the server's output")? {
        if let Ok(hello) = serde_json::from_str(&line) {
            return Ok(hello);
        }
    }
    anyhow::bail!("the server ended without saying its address")
}

/// Serves until standard input ends.
pub(crate) async fn serve(through: Through, trusted: Trusted) -> anyhow::Result<()> {
    let issuer = TestIssuer::new();
    let authorization = format!("Bearer {}", issuer.token(Role::Customer));
    match through {
        Through::Bare => {
            let server =
                EchoServer::start(EchoService::default(), SocketAddr::from(([127, 0, 0, 1], 0))).await?;
            say_hello(&Hello { address: server.address(), authorization })?;
            input_ends().await;
            server.stop().await;
        }
        Through::Kit => {
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
            // On, as in production.
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
    // An error is an end, too.
    let _ = tokio::io::stdin().read_to_end(&mut nothing).await;
}
