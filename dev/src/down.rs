//! `onsale down` stops the mesh that `onsale up` started in another terminal.

use std::{path::PathBuf, time::Duration};

use anyhow::bail;
use onsale::{
    mesh::{DIRECTORY_DEFAULT, folder::Folder},
    output,
};
use onsale_testkit::stack::process::{self, Signal};
use tokio::time::Instant;

/// Longest wait for the mesh to stop: its six tiers stop one after the other, each within 8 s.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `onsale down`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the mesh
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
}

/// Signals the supervisor and waits until the mesh has stopped. Succeeds if no mesh runs.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let folder = Folder::locate(&arguments.directory)?;
    let root = folder.root().display();
    let Some(supervisor) = folder.supervisor() else {
        output::say(format_args!("no mesh runs in {root}"));
        return Ok(());
    };
    process::send(supervisor, Signal::Terminate)?;
    let end = Instant::now() + TIMEOUT;
    while folder.supervisor() == Some(supervisor) {
        if Instant::now() >= end {
            bail!(
                "the mesh in {root} (process {supervisor}) did not stop within {} s: see `onsale logs`",
                TIMEOUT.as_secs()
            );
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    output::say(format_args!("the mesh in {root} has stopped"));
    Ok(())
}
