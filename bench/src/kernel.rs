//! Figures of the Linux kernel about processes: resident memory, processor time and the limit of open files.

use std::{collections::HashMap, path::Path, time::Duration};

use anyhow::{Context, bail};
use onsale_testkit::stack::process::{find_program, run_to_end};

/// Unit of times in `/proc`: 10 ms on every Linux, whatever the kernel's own tick is.
const TICK: Duration = Duration::from_millis(10);

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: u32,
    /// Processor time of the process and of its children that have ended.
    time: Duration,
}

/// Returns the resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    resident_in(&status).context("/proc/PID/status has no resident memory")
}

/// Returns the processor time of a process since its start.
pub(crate) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    Ok(parse_stat(&stat).context("/proc/PID/stat has an unknown format")?.time)
}

/// Returns the processor time of all descendants of this process with this name.
pub(crate) fn processor_time_below(name: &str) -> anyhow::Result<Duration> {
    let mut processes: HashMap<u32, Stat> = HashMap::new();
    for entry in std::fs::read_dir("/proc").context("there is no /proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // A process that ends meanwhile has no file any more.
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok();
        if let (Some(pid), Some(stat)) = (pid, stat.as_deref().and_then(parse_stat)) {
            processes.insert(pid, stat);
        }
    }
    let us = std::process::id();
    let is_below_us = |pid: &u32| {
        let ancestors = std::iter::successors(Some(*pid), |pid| processes.get(pid).map(|stat| stat.parent));
        ancestors.skip(1).take(processes.len()).any(|ancestor| ancestor == us)
    };
    Ok(processes
        .iter()
        .filter(|(pid, stat)| stat.name == name && is_below_us(pid))
        .map(|(_, stat)| stat.time)
        .sum())
}

/// Raises the limit of open files of this process and its future children to the hard limit, and returns that.
pub(crate) fn raise_open_files() -> anyhow::Result<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").context("there is no /proc")?;
    let Some(most) = open_files_in(&limits) else { bail!("/proc/self/limits has no limit of open files") };
    let mut command = std::process::Command::new(find_program("prlimit", "util-linux")?);
    command.arg(format!("--nofile={most}:{most}")).arg("--pid").arg(std::process::id().to_string());
    run_to_end(command, "prlimit").context("failed to raise the limit of open files")?;
    Ok(most)
}

/// Describes this machine for the report.
pub(crate) fn machine() -> serde_json::Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory_kib = memory.lines().find_map(|line| kibibytes(line.strip_prefix("MemTotal:")?));
    let version = std::fs::read_to_string(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    serde_json::json!({
        "processor": model,
        "processors": std::thread::available_parallelism().map(std::num::NonZero::get).unwrap_or(0),
        "memory_mib": memory_kib.unwrap_or(0) / 1024,
        "linux": version.trim(),
    })
}

fn resident_in(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| kibibytes(line.strip_prefix("VmRSS:")?))?;
    Some(kib.saturating_mul(1024))
}

fn kibibytes(rest: &str) -> Option<u64> {
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Parses `/proc/PID/stat`. The name is in parentheses and may itself contain parentheses and spaces.
fn parse_stat(stat: &str) -> Option<Stat> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    // `tail` begins with the third field; the times are the fourteenth to the seventeenth.
    let ticks = (11..15).map(number).sum::<Option<u32>>()?;
    Some(Stat { name: name.to_owned(), parent: number(1)?, time: TICK.saturating_mul(ticks) })
}

/// Returns the hard limit of open files from `/proc/PID/limits`.
fn open_files_in(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_parsed() {
        let status = "Name:\tqueue\nVmPeak:\t  999 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(resident_in(status), Some(2 * 1024 * 1024));
        let stat = "12 (a ) b) S 7 12 12 0 -1 4194304 100 0 0 0 150 50 3 2 20 0 1 0 99 0 0";
        let read = Stat { name: "a ) b".to_owned(), parent: 7, time: Duration::from_millis(2_050) };
        assert_eq!(parse_stat(stat), Some(read));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 20000                files\n";
        assert_eq!(open_files_in(limits), Some(20_000));
    }

    #[test]
    fn own_process_has_memory_and_processor_time() {
        let us = std::process::id();
        assert!(resident_bytes(us).unwrap() > 100_000);
        assert!(processor_time(us).unwrap() < Duration::from_secs(3_600));
    }
}
