//! The file that survives: one line per commit, each a JSON list of changes, appended and never rewritten.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::model::Change;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be opened, read or written.
    #[error("failed to use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line that is not the last is no commit: the file is not ours, or was changed.
    #[error("line {line} of {} is no commit", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// An open journal.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal at `path`, or begins it, and answers everything that was committed to it.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Change>), JournalError> {
        let failed = |source| JournalError::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // A process that died while it wrote left a line without its end: that commit did not happen.
        let whole = text.rfind('\n').map_or(0, |end| end.saturating_add(1));
        file.set_len(u64::try_from(whole).unwrap_or(u64::MAX)).map_err(failed)?;
        let mut changes = Vec::new();
        for (index, line) in text.get(..whole).unwrap_or_default().lines().enumerate() {
            let commit: Vec<Change> = serde_json::from_str(line).map_err(|source| JournalError::Line {
                path: path.to_owned(),
                line: index.saturating_add(1),
                source,
            })?;
            changes.extend(commit);
        }
        Ok((Self { path: path.to_owned(), file }, changes))
    }

    /// Adds one commit. Written, not synced: it has to survive the process, not the machine.
    pub(super) fn append(&mut self, commit: &[Change]) -> Result<(), JournalError> {
        let written = serde_json::to_string(commit).map_err(io::Error::from).and_then(|mut line| {
            line.push('\n');
            self.file.write_all(line.as_bytes())
        });
        written.map_err(|source| JournalError::File { path: self.path.clone(), source })
    }
}
