//! `onsale logs` prints the logs of a mesh's processes, also after the mesh has stopped.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use onsale::mesh::{DIRECTORY_DEFAULT, folder::Folder};

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Arguments of `onsale logs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Process to show, as `onsale status` names it [default: all]
    name: Option<String>,
    /// Keeps printing new lines until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Number of lines to show from the end of each log
    #[arg(long, short = 'n', default_value_t = 50)]
    lines: usize,
    /// Folder of the mesh
    #[arg(long, default_value = DIRECTORY_DEFAULT)]
    directory: PathBuf,
}

/// Prints the end of each log and, with `--follow`, the lines that are added.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let folder = Folder::locate(&arguments.directory)?;
    let mut logs = open(&folder, arguments.name.as_deref())?;
    let several = logs.len() > 1;
    for log in &mut logs {
        let text = log.new_lines()?;
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.iter().skip(lines.len().saturating_sub(arguments.lines));
        if !print(end.copied(), several.then_some(&log.name)) {
            return Ok(());
        }
    }
    if !arguments.follow {
        return Ok(());
    }
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        for log in &mut logs {
            if !print(log.new_lines()?.lines(), several.then_some(&log.name)) {
                return Ok(());
            }
        }
    }
}

/// Returns false if the reader of standard output is gone.
fn print<'a>(lines: impl Iterator<Item = &'a str>, name: Option<&String>) -> bool {
    let mut out = std::io::stdout().lock();
    for line in lines {
        let written = match name {
            Some(name) => writeln!(out, "{name:<13} {line}"),
            None => writeln!(out, "{line}"),
        };
        if written.is_err() {
            return false;
        }
    }
    out.flush().is_ok()
}

fn open(folder: &Folder, name: Option<&str>) -> anyhow::Result<Vec<Log>> {
    let entries = std::fs::read_dir(folder.logs()).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    if paths.is_empty() {
        bail!("there are no logs in {}", folder.logs().display());
    }
    let mut logs = paths.iter().map(|path| Log::open(path)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(name) = name {
        let names: Vec<String> = logs.iter().map(|log| log.name.clone()).collect();
        logs.retain(|log| log.name == name);
        if logs.is_empty() {
            bail!("there is no log of {name:?}; there are {}", names.join(", "));
        }
    }
    Ok(logs)
}

struct Log {
    name: String,
    file: File,
    /// Position up to which the file was read, in bytes.
    read: u64,
}

impl Log {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
        Ok(Self { name, file, read: 0 })
    }

    /// Returns the complete lines that were added since the last call.
    fn new_lines(&mut self) -> anyhow::Result<String> {
        let failed = || format!("failed to read the log of {}", self.name);
        let length = self.file.metadata().with_context(failed)?.len();
        if length < self.read {
            // The log was rotated: read it from its start.
            self.read = 0;
        }
        self.file.seek(SeekFrom::Start(self.read)).with_context(failed)?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).with_context(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.truncate(whole);
        self.read += u64::try_from(whole).unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
