//! `onsale status` shows the processes of a mesh and checks whether each one responds.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    mesh::{
        DIRECTORY_DEFAULT,
        folder::Folder,
        manifest::{Manifest, ProcessInfo, ProcessState},
    },
    output,
};

/// Arguments of `onsale status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the mesh
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Prints one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Output of `onsale status --json`.
#[derive(Debug, Serialize)]
struct Status {
    /// True if a supervisor runs.
    running: bool,
    /// True if a supervisor runs, and every process is ready and passes its check.
    well: bool,
    processes: Vec<ProcessStatus>,
}

#[derive(Debug, Serialize)]
struct ProcessStatus {
    #[serde(flatten)]
    info: ProcessInfo,
    /// True if the process passed its check just now.
    answers: bool,
}

/// Checks every process and prints the result. Exits with 1 unless all processes are ready and respond.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let folder = Folder::locate(&arguments.directory)?;
    let running = folder.supervisor().is_some();
    let status = match Manifest::read_in(&folder) {
        Ok(manifest) if running => check(manifest).await?,
        // The manifest exists but cannot be read, most likely because another account runs the mesh.
        Err(error) if running && folder.manifest().exists() => return Err(error),
        // A manifest without a running supervisor is left over from one that was killed.
        Ok(_) | Err(_) => Status { running, well: false, processes: Vec::new() },
    };
    if arguments.json {
        output::say(serde_json::to_string_pretty(&status)?);
    } else {
        show(&status, &folder);
    }
    Ok(if status.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check(manifest: Manifest) -> anyhow::Result<Status> {
    let http = reqwest::Client::builder().no_proxy().build().context("failed to create an HTTP client")?;
    let mut checks = JoinSet::new();
    for (index, info) in manifest.processes.into_iter().enumerate() {
        let http = http.clone();
        checks.spawn(async move {
            let answers = info.check.passes(&http).await;
            (index, ProcessStatus { info, answers })
        });
    }
    let mut checked = checks.join_all().await;
    checked.sort_by_key(|(index, _)| *index);
    let processes: Vec<_> = checked.into_iter().map(|(_, status)| status).collect();
    let is_well = |status: &ProcessStatus| status.answers && status.info.state == ProcessState::Ready;
    Ok(Status { running: true, well: processes.iter().all(is_well), processes })
}

fn show(status: &Status, folder: &Folder) {
    let root = folder.root().display();
    if !status.running {
        output::say(format_args!("no mesh runs in {root}: start one with `make up`"));
        return;
    }
    if status.processes.is_empty() {
        output::say(format_args!("the mesh in {root} is starting or stopping"));
        return;
    }
    output::say(format_args!("{:<14}{:<12}{:<10}{:<10}address", "name", "state", "pid", "restarts"));
    for ProcessStatus { info, answers } in &status.processes {
        let state = match info.state {
            ProcessState::Ready if !answers => "silent",
            ProcessState::Ready => "ready",
            ProcessState::Starting => "starting",
            ProcessState::Restarting => "restarting",
            ProcessState::Failed => "failed",
            ProcessState::Stopped => "stopped",
        };
        let pid = info.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let addresses = info.addresses.join(" ");
        let restarts = info.restarts;
        output::say(format_args!("{:<14}{state:<12}{pid:<10}{restarts:<10}{addresses}", info.name));
    }
}
