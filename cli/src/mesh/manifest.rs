//! `mesh.json`: addresses and processes of a running mesh, for tools and tests. It exists only while the mesh is ready.

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

/// Content of `mesh.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Process id of `onsale up`, which keeps the other processes running.
    pub supervisor: u32,
    /// Addresses of the mesh.
    pub endpoints: Endpoints,
    /// Development sign-in.
    pub issuer: Issuer,
    /// UUID of the demo event. `None` if its creation failed.
    pub demo_event: Option<String>,
    /// Every process, in start order.
    pub processes: Vec<ProcessInfo>,
}

/// Addresses of a mesh, as URLs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Endpoints {
    /// Envoy: web, gRPC, gRPC-Web, REST and webhooks.
    pub front_door: String,
    /// The gateway's gRPC port, behind Envoy.
    pub gateway_grpc: String,
    /// The gateway's HTTP port, behind Envoy.
    pub gateway_http: String,
    /// Envoy's admin page.
    pub envoy_admin: String,
    /// The mail catcher's page and JSON API.
    pub mail: String,
    /// The mail catcher's SMTP port.
    pub smtp: String,
    /// The sandbox payment provider.
    pub provider: String,
    /// The Postgres database.
    pub postgres: String,
    /// Nodes of the Redis Cluster.
    pub redis: Vec<String>,
}

/// Facts that a verifier of the development sign-in's tokens needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Issuer {
    /// The claim `iss`.
    pub issuer: String,
    /// The claim `aud`.
    pub audience: String,
    /// File of the public keys.
    pub jwks: PathBuf,
}

/// One process of a mesh.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// Unique name, such as `claim` or `redis-1`.
    pub name: String,
    /// State as the supervisor last saw it.
    pub state: ProcessState,
    /// Process id. `None` while the process does not run.
    pub pid: Option<u32>,
    /// Listening addresses, the main one first.
    pub addresses: Vec<String>,
    /// URL of metrics and probes. `None` if the process has no such port.
    pub admin: Option<String>,
    /// Readiness check.
    pub check: Check,
    /// Path of the log.
    pub log: PathBuf,
    /// Number of unexpected exits after which the supervisor restarted the process.
    pub restarts: u32,
}

/// State of a process, as its supervisor sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// Running, but its check has not passed yet.
    Starting,
    /// Running, and its check has passed.
    Ready,
    /// Exited; the supervisor waits before it starts the process again.
    Restarting,
    /// Exited too often, or for a reason that a restart cannot fix.
    Failed,
    /// Stopped on request.
    Stopped,
}

impl Manifest {
    /// Reads the manifest of the mesh in `directory`, the value of `--directory`. Fails if no mesh is ready there.
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
        serde_json::from_str(&text).with_context(|| format!("{} is not a valid manifest", path.display()))
    }

    /// Replaces the manifest of the mesh in `folder`.
    pub fn write_in(&self, folder: &Folder) -> anyhow::Result<()> {
        write_private(&folder.manifest(), &serde_json::to_string_pretty(self)?)
    }
}
