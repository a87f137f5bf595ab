//! Processes left over from a supervisor that was killed, and the files that record them.
//!
//! The kernel signals the children of a killed supervisor, and some need seconds to stop. A new mesh waits for them, because
//! they use its ports and data. A process is identified by its id *and* its start time, because ids are reused.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use onsale::{
    mesh::folder::{Folder, write_private},
    output,
};
use onsale_testkit::stack::process::{self, Signal};

/// Time to stop after the kernel's signal, after which a process is killed. Stores need less; a service that waits for a
/// stopped store would need longer.
const TIMEOUT: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Records that `process` runs as `pid`.
pub(crate) fn record(folder: &Folder, process: &str, pid: u32) -> anyhow::Result<()> {
    let Some(begun) = begun_at(pid) else { return Ok(()) };
    write_private(&folder.run().join(process), &format!("{pid} {begun}"))
}

/// Deletes the record of `process`.
pub(crate) fn remove_record(folder: &Folder, process: &str) {
    let _ = std::fs::remove_file(folder.run().join(process));
}

/// Waits until no recorded process of an earlier mesh runs. Kills processes that still run after 3 s, and fails after 6 s.
pub(crate) async fn wait_until_gone(folder: &Folder) -> anyhow::Result<()> {
    let records = std::fs::read_dir(folder.run()).context("failed to list the recorded processes")?;
    let end = Instant::now() + TIMEOUT;
    let mut announced = false;
    for record in records.filter_map(Result::ok).map(|entry| entry.path()) {
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        if let Some((pid, begun)) = text.split_once(' ')
            && let Ok(pid) = pid.parse()
        {
            while begun_at(pid).is_some_and(|now| now == begun) {
                if !announced {
                    output::say("waiting for the processes of an earlier mesh to stop");
                    announced = true;
                }
                if Instant::now() >= end + TIMEOUT {
                    bail!("process {pid} of an earlier mesh does not stop");
                }
                if Instant::now() >= end {
                    // Fails if the process has just stopped.
                    let _ = process::send(pid, Signal::Kill);
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        let _ = std::fs::remove_file(&record);
    }
    Ok(())
}

/// Removes the `postmaster.pid` of a killed Postgres if another program now has the process id in it: Postgres would mistake
/// that program for itself and refuse to start. In all other cases Postgres handles the file correctly.
pub(crate) fn unblock_postgres(data: &Path) {
    let pid_file = data.join("postmaster.pid");
    let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
    let Some(pid) = text.lines().next() else { return };
    let name = std::fs::read_to_string(Path::new("/proc").join(pid).join("comm"));
    if name.is_ok_and(|name| name.trim() != "postgres") {
        let _ = std::fs::remove_file(&pid_file);
    }
}

/// Returns the start time of a running process in kernel ticks since boot, or `None` if there is no such process.
fn begun_at(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain spaces. The state is the first field after it, the start time the twentieth.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // A zombie has ended; only its parent has not collected its exit status.
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
    async fn start_waits_for_a_recorded_process_that_still_runs() {
        let (_directory, folder) = folder();
        let mut child = Command::new("sleep").arg("1").spawn().unwrap();
        record(&folder, "claim", child.id()).unwrap();
        wait_until_gone(&folder).await.unwrap();
        assert!(child.try_wait().unwrap().is_some());
        assert!(!folder.run().join("claim").exists());
    }

    #[tokio::test]
    async fn reused_process_id_is_not_waited_for() {
        let (_directory, folder) = folder();
        let others = folder.run().join("claim");
        std::fs::write(&others, format!("{} 1", std::process::id())).unwrap();
        wait_until_gone(&folder).await.unwrap();
        assert!(!others.exists());
    }

    #[test]
    fn postmaster_file_is_removed_only_if_another_program_has_its_pid() {
        let directory = tempfile::tempdir().unwrap();
        let pid_file = directory.path().join("postmaster.pid");
        for (pid, stays) in [(std::process::id(), false), (u32::MAX, true)] {
            std::fs::write(&pid_file, format!("{pid}\nrest\n")).unwrap();
            unblock_postgres(directory.path());
            assert_eq!(pid_file.exists(), stays, "{pid}");
        }
    }
}
