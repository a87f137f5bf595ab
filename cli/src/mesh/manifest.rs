//! `mesh.json`: what runs where, for tools and tests beside the mesh. There while the mesh is ready, gone when it is not.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::{
    check::Check,
    folder::{Folder, write_private},
};

/// All about a running mesh.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The process that keeps the others running.
    pub supervisor: u32,
    /// Where everything is.
    pub endpoints: Endpoints,
    /// Who issues tokens to people.
    pub issuer: Issuer,
    /// UUID of the demo event; none when it could not be made.
    pub demo_event: Option<String>,
    /// Every process, in the order in which they start.
    pub processes: Vec<ProcessFacts>,
}

/// Where to reach what.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoints {
    /// Envoy: web, gRPC, gRPC-Web, REST, webhooks.
    pub front_door: String,
    /// The gateway behind it, gRPC.
    pub gateway_grpc: String,
    /// The gateway behind it, HTTP.
    pub gateway_http: String,
    /// Envoy's own page.
    pub envoy_admin: String,
    /// Mail that was caught, as a page and as JSON.
    pub mail: String,
    /// Where mail is caught.
    pub smtp: String,
    /// The sandbox payment provider.
    pub provider: String,
    /// The database.
    pub postgres: String,
    /// The nodes of the Redis Cluster.
    pub redis: Vec<String>,
}

/// The development sign-in, as a verifier of its tokens needs it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issuer {
    /// The claim `iss`.
    pub issuer: String,
    /// The claim `aud`.
    pub audience: String,
    /// The file with its public keys.
    pub jwks: PathBuf,
}

/// One process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// What it is called.
    pub name: String,
    /// How it is.
    pub state: ProcessState,
    /// Its process id, while it runs.
    pub pid: Option<u32>,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Where its metrics and probes are, if it has them.
    pub admin: Option<String>,
    /// How to see that it is ready.
    pub check: Check,
    /// What it logs.
    pub log: PathBuf,
    /// How often it died and was started again.
    pub restarts: u32,
}

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It runs and is not ready yet.
    Starting,
    /// It does its work.
    Ready,
    /// It died and will be started again.
    Restarting,
    /// It died too often.
    Failed,
    /// It was stopped.
    Stopped,
}

impl Manifest {
    /// Of the mesh in `directory`, as `--directory` names it. An error when none is ready there.
    pub fn read(directory: &Path) -> anyhow::Result<Self> {
        Self::read_in(&Folder::locate(directory)?)
    }

    pub(crate) fn read_in(folder: &Folder) -> anyhow::Result<Self> {
        let path = folder.manifest();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("no mesh is ready in {}", folder.root().display())
            }
            Err(error) => return Err(error).with_context(|| format!("failed to read {}", path.display())),
        };
        serde_json::from_str(&text).with_context(|| format!("{} is not what it should be", path.display()))
    }

    pub(crate) fn write_in(&self, folder: &Folder) -> anyhow::Result<()> {
        write_private(&folder.manifest(), &serde_json::to_string_pretty(self)?)
    }
}
