//! Finds the process that listens on a port, in the kernel's tables. Only error messages use it.

use std::path::{Path, PathBuf};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Returns the name and id of the process that listens on `port`, or `None` if this account may not see it.
pub(crate) fn on_port(port: u16) -> Option<String> {
    let socket = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| socket_on(table, port))?;
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok).map(|entry| entry.path());
    processes.into_iter().find_map(|process| {
        // Skips `self`, `net` and other entries that are not processes.
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        has_open(&process, &socket).then(|| format!("{} (process {pid})", name.trim()))
    })
}

/// Returns the socket that listens on `port`, in the form of the links in `/proc/PID/fd`.
fn socket_on(table: &str, port: u16) -> Option<PathBuf> {
    let wanted = format!(":{port:04X}");
    std::fs::read_to_string(table).ok()?.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let local = fields.nth(1)?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?;
        (local.ends_with(&wanted) && state == LISTENING).then(|| PathBuf::from(format!("socket:[{inode}]")))
    })
}

fn has_open(process: &Path, socket: &Path) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
    files.into_iter().any(|file| std::fs::read_link(file.path()).is_ok_and(|link| link == socket))
}
