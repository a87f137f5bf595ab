//! `onsale down`: stops the mesh that `onsale up` started, from anywhere.

use std::{path::PathBuf, time::Duration};

use anyhow::bail;
use onsale_testkit::stack::process::{self, Signal};
use tokio::time::Instant;

use onsale::{
    mesh::{DIRECTORY_DEFAULT, folder::Folder},
    output,
};

/// Six tiers stop one after the other, each in a few seconds at worst.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What `onsale down` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the mesh.
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
}

/// Asks the supervisor to stop and waits until it has.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let folder = Folder::locate(&arguments.directory)?;
    let place = folder.root().display();
    let Some(supervisor) = folder.supervisor() else {
        output::say(format_args!("no mesh runs in {place}"));
        return Ok(());
    };
    process::send(supervisor, Signal::Terminate)?;
    let end = Instant::now() + PATIENCE;
    while folder.supervisor() == Some(supervisor) {
        if Instant::now() >= end {
            bail!("the mesh in {place} (process {supervisor}) does not stop: see `onsale logs`");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    output::say(format_args!("the mesh in {place} has stopped"));
    Ok(())
}
