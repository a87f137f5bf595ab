//! The file that survives: one line per commit, each a JSON list of changes, appended and never rewritten.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::records::Change;

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
    /// Where the last whole commit ends.
    end: u64,
    /// A write failed, and may have left a part of a line behind.
    is_torn: bool,
}

impl Journal {
    /// Opens the journal at `path`, or begins it, and answers everything that was committed to it.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Change>), JournalError> {
        let failed = |source| JournalError::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        // Bytes, not text: a torn line may end within a letter.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        // A process that died while it wrote left a line without its end: that commit did not happen.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end.saturating_add(1));
        let end = u64::try_from(whole).unwrap_or(u64::MAX);
        file.set_len(end).map_err(failed)?;
        let mut changes = Vec::new();
        for (index, line) in bytes.get(..whole).unwrap_or_default().split_inclusive(is_line_end).enumerate() {
            let commit: Vec<Change> = serde_json::from_slice(line).map_err(|source| JournalError::Line {
                path: path.to_owned(),
                line: index.saturating_add(1),
                source,
            })?;
            changes.extend(commit);
        }
        Ok((Self { path: path.to_owned(), file, end, is_torn: false }, changes))
    }

    /// Adds one commit. Written, not synced: it has to survive the process, not the machine.
    pub(super) fn append(&mut self, commit: &[Change]) -> Result<(), JournalError> {
        self.write(commit).map_err(|source| JournalError::File { path: self.path.clone(), source })
    }

    fn write(&mut self, commit: &[Change]) -> io::Result<()> {
        let mut line = serde_json::to_vec(commit)?;
        line.push(b'\n');
        // What a full disk left of a commit that did not happen must not become the head of the next.
        if self.is_torn {
            self.file.set_len(self.end)?;
        }
        self.is_torn = true;
        self.file.write_all(&line)?;
        self.is_torn = false;
        self.end = self.end.saturating_add(u64::try_from(line.len()).unwrap_or(u64::MAX));
        Ok(())
    }
}

fn is_line_end(byte: &u8) -> bool {
    *byte == b'\n'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(id: &str) -> Vec<Change> {
        vec![Change::EventClosed(id.to_owned())]
    }

    fn ids(changes: &[Change]) -> Vec<&str> {
        changes
            .iter()
            .filter_map(|change| if let Change::EventClosed(id) = change { Some(id.as_str()) } else { None })
            .collect()
    }

    #[test]
    fn a_commit_torn_within_a_letter_did_not_happen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&done("č")).unwrap();
        journal.append(&done("č")).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let within = bytes.len() - "\"}]\n".len() - 1;
        std::fs::write(&path, &bytes[..within]).unwrap();
        let (mut journal, changes) = Journal::open(&path).unwrap();
        assert_eq!(ids(&changes), ["č"]);
        journal.append(&done("next")).unwrap();
        assert_eq!(ids(&Journal::open(&path).unwrap().1), ["č", "next"]);
    }

    #[test]
    fn a_write_that_failed_halfway_does_not_spoil_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&done("first")).unwrap();
        // As a full disk leaves it.
        journal.file.write_all(b"[{\"do").unwrap();
        journal.is_torn = true;
        journal.append(&done("second")).unwrap();
        assert_eq!(ids(&Journal::open(&path).unwrap().1), ["first", "second"]);
    }
}
