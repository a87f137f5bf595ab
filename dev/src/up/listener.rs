//! Who listens on a port, read from the kernel's tables. Only to say it: nothing depends on it.

use std::path::{Path, PathBuf};

/// The state of a listening socket in the kernel's table.
const LISTENING: &str = "0A";

/// The process that listens on `port`, as a person would name it. None when that cannot be seen.
pub(crate) fn on_port(port: u16) -> Option<String> {
    let socket = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| socket_on(table, port))?;
    let processes = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok).map(|entry| entry.path());
    processes.into_iter().find_map(|process| {
        // Not `self` and the like.
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        has_open(&process, &socket).then(|| format!("{} (process {pid})", name.trim()))
    })
}

/// The listening socket on `port`, as links to it are spelled.
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
