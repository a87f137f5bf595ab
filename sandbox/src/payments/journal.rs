//! Append-only journal file. Each line is one commit: a JSON list of changes. Lines are never rewritten; only an incomplete
//! last line is cut off.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::records::Change;

/// Reasons for a failed use of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be opened, read or written.
    #[error("failed to use {}", path.display())]
    File {
        /// Path of the journal.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A complete line is not a commit: the file is not a journal, or was changed.
    #[error("line {line} of {} is not a journal commit", path.display())]
    Line {
        /// Path of the journal.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// Error of the JSON parser.
        #[source]
        source: serde_json::Error,
    },
}

/// A journal open for appending.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    /// File offset behind the last complete commit.
    end: u64,
    /// Set while a write is incomplete; the file may then end with a partial line.
    is_torn: bool,
}

impl Journal {
    /// Opens or creates the journal at `path` and returns the changes of all its commits.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Change>), JournalError> {
        let failed = |source| JournalError::File { path: path.to_owned(), source };
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(failed)?;
        // Bytes instead of text: an incomplete line may end within a UTF-8 character.
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        // A line without a line feed was cut off by a crash: the commit did not happen.
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

    /// Appends one commit without fsync: the journal must survive a crash of the process, not of the machine.
    pub(super) fn append(&mut self, commit: &[Change]) -> Result<(), JournalError> {
        self.write(commit).map_err(|source| JournalError::File { path: self.path.clone(), source })
    }

    fn write(&mut self, commit: &[Change]) -> io::Result<()> {
        let mut line = serde_json::to_vec(commit)?;
        line.push(b'\n');
        // Cut off the rest of a failed write, else the next commit would be appended to it.
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
    fn commit_cut_off_within_a_character_is_discarded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&done("č")).unwrap();
        journal.append(&done("č")).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let length = bytes.len() - "\"}]\n".len() - 1;
        std::fs::write(&path, &bytes[..length]).unwrap();
        let (mut journal, changes) = Journal::open(&path).unwrap();
        assert_eq!(ids(&changes), ["č"]);
        journal.append(&done("next")).unwrap();
        assert_eq!(ids(&Journal::open(&path).unwrap().1), ["č", "next"]);
    }

    #[test]
    fn commit_after_a_partial_write_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path).unwrap();
        journal.append(&done("first")).unwrap();
        // A full disk can leave such a partial line.
        journal.file.write_all(b"[{\"do").unwrap();
        journal.is_torn = true;
        journal.append(&done("second")).unwrap();
        assert_eq!(ids(&Journal::open(&path).unwrap().1), ["first", "second"]);
    }
}
