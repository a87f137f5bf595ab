//! What a supervisor that was killed left behind: processes that are still ending, and notes about them.
//!
//! The kernel tells the children of a killed supervisor to end; some need a moment. A new mesh waits for them, because they
//! have its ports and its data. A process is known by its id *and* the time it began: ids are used again.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use onsale_testkit::stack::process::{self, Signal};

use onsale::mesh::folder::{Folder, write_private};
use onsale::output;

/// How long they may take to end by themselves. Stores need less; services whose stores are gone wait in vain.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Notes that `process` runs as `pid`.
pub(crate) fn note(folder: &Folder, process: &str, pid: u32) -> anyhow::Result<()> {
    let Some(begun) = begun_at(pid) else { return Ok(()) };
    write_private(&folder.run().join(process), &format!("{pid} {begun}"))
}

/// Forgets the note.
pub(crate) fn forget(folder: &Folder, process: &str) {
    let _ = std::fs::remove_file(folder.run().join(process));
}

/// Waits until nothing of an earlier mesh runs; what does not end by itself is ended.
pub(crate) async fn wait_until_gone(folder: &Folder) -> anyhow::Result<()> {
    let notes = std::fs::read_dir(folder.run()).context("failed to read the notes about processes")?;
    let end = Instant::now() + PATIENCE;
    let mut told = false;
    for note in notes.filter_map(Result::ok).map(|entry| entry.path()) {
        let text = std::fs::read_to_string(&note).unwrap_or_default();
        if let Some((pid, begun)) = text.split_once(' ')
            && let Ok(pid) = pid.parse()
        {
            while begun_at(pid).is_some_and(|now| now == begun) {
                if !told {
                    output::say("waiting for the processes of an earlier mesh to end");
                    told = true;
                }
                if Instant::now() >= end + PATIENCE {
                    bail!("process {pid} of an earlier mesh does not end");
                }
                if Instant::now() >= end {
                    // It may have ended just now.
                    let _ = process::send(pid, Signal::Kill);
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        let _ = std::fs::remove_file(&note);
    }
    Ok(())
}

/// Removes the mark of a Postgres that was killed, when its process id now belongs to somebody else: Postgres would take
/// that for itself. With any other mark Postgres knows better than we do.
pub(crate) fn unblock_postgres(data: &Path) {
    let mark = data.join("postmaster.pid");
    let text = std::fs::read_to_string(&mark).unwrap_or_default();
    let Some(pid) = text.lines().next() else { return };
    let name = std::fs::read_to_string(Path::new("/proc").join(pid).join("comm"));
    if name.is_ok_and(|name| name.trim() != "postgres") {
        let _ = std::fs::remove_file(&mark);
    }
}

/// When the process began, in the kernel's own count. None when there is none.
fn begun_at(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have spaces; after it the state is first and the begin is twentieth.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A process that ended and was not taken notice of is gone for us.
    let state = fields.next()?;
    if state == "Z" { None } else { fields.nth(18).map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::locate(directory.path()).unwrap();
        folder.create().unwrap();
        (directory, folder)
    }

    #[tokio::test]
    async fn a_process_that_is_still_ending_is_waited_for() {
        let (_directory, folder) = folder();
        let mut child = Command::new("sleep").arg("1").spawn().unwrap();
        note(&folder, "claim", child.id()).unwrap();
        wait_until_gone(&folder).await.unwrap();
        assert!(child.try_wait().unwrap().is_some());
        assert!(!folder.run().join("claim").exists());
    }

    #[tokio::test]
    async fn a_process_id_that_is_used_again_is_not_ours() {
        let (_directory, folder) = folder();
        let others = folder.run().join("claim");
        std::fs::write(&others, format!("{} 1", std::process::id())).unwrap();
        wait_until_gone(&folder).await.unwrap();
        assert!(!others.exists());
    }

    #[test]
    fn a_mark_of_postgres_goes_only_when_its_process_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().join("postmaster.pid");
        for (pid, stays) in [(std::process::id(), false), (u32::MAX, true)] {
            std::fs::write(&mark, format!("{pid}\nrest\n")).unwrap();
            unblock_postgres(directory.path());
            assert_eq!(mark.exists(), stays, "{pid}");
        }
    }
}
