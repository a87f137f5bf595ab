//! Mail storage: one file per mail, up to a maximum number. A mail is written to a temporary file and then renamed, so a
//! `.eml` file is always complete.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use onsale_types::{Clock, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::fs;
use uuid::Uuid;

use super::message::Mail;

/// Number of mails in a list if the query has no limit.
const LISTED_DEFAULT: usize = 50;
/// Largest number of mails in a list.
const LISTED_MAX: usize = 500;
/// Header in front of the stored mail with the SMTP envelope as JSON; the mail itself does not contain it.
const ENVELOPE_HEADER: &str = "X-Catcher-Envelope: ";
/// Extension of a file that is still being written.
const PARTIAL_EXTENSION: &str = "tmp";

/// A failed operation on the mail folder.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt} {}", path.display())]
pub struct MailboxError {
    attempt: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Filter of a list of mails.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// Only mails with this recipient, case-insensitive. `None`: all mails.
    pub to: Option<String>,
    /// Maximum number of mails. `None`: 50. Values over 500 are treated as 500.
    pub limit: Option<usize>,
}

/// Sender and recipients as given in the SMTP session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) from: String,
    pub(super) to: Vec<String>,
}

/// Envelope and arrival time, stored as JSON in the first line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredEnvelope {
    pub(super) from: String,
    pub(super) to: Vec<String>,
    pub(super) time: Timestamp,
}

/// Properties of a mail that are kept in memory, to list mails without reading their files.
#[derive(Debug)]
struct IndexEntry {
    id: Uuid,
    to: Vec<String>,
}

/// The mails in one folder.
pub(super) struct Mailbox {
    folder: PathBuf,
    mails_max: usize,
    clock: Arc<dyn Clock>,
    /// Sorted by age, oldest first.
    index: Mutex<VecDeque<IndexEntry>>,
}

impl Mailbox {
    /// Creates the folder if needed, deletes partial files and indexes the existing mails.
    pub(super) async fn open(
        folder: PathBuf,
        mails_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, MailboxError> {
        fs::create_dir_all(&folder).await.map_err(failed("create", &folder))?;
        let mailbox = Self { folder, mails_max, clock, index: Mutex::default() };
        for id in mailbox.ids_on_disk().await? {
            // Files without the envelope header are not ours: leave them and do not list them.
            if let Some((stored, _)) = mailbox.read(id).await? {
                mailbox.add_to_index(IndexEntry { id, to: stored.to }).await;
            }
        }
        Ok(mailbox)
    }

    /// Stores a mail and returns its id. Later ids sort after earlier ones.
    pub(super) async fn store(&self, envelope: Envelope, mail: &[u8]) -> Result<Uuid, MailboxError> {
        let id = Uuid::now_v7();
        let stored = StoredEnvelope { from: envelope.from, to: envelope.to, time: self.clock.now() };
        let path = self.path(id);
        let json = serde_json::to_string(&stored)
            .map_err(|source| failed("encode the envelope of", &path)(io::Error::other(source)))?;
        let mut file = format!("{ENVELOPE_HEADER}{json}\r\n").into_bytes();
        file.extend_from_slice(mail);
        let partial = self.partial_path(id);
        fs::write(&partial, file).await.map_err(failed("write", &partial))?;
        fs::rename(&partial, &path).await.map_err(failed("rename a mail to", &path))?;
        self.add_to_index(IndexEntry { id, to: stored.to }).await;
        Ok(id)
    }

    /// Returns the mails that match `query`, newest first.
    pub(super) async fn list(&self, query: &Query) -> Result<Vec<Mail>, MailboxError> {
        let limit = query.limit.unwrap_or(LISTED_DEFAULT).min(LISTED_MAX);
        let matches = |entry: &&IndexEntry| match &query.to {
            Some(wanted) => entry.to.iter().any(|to| to.eq_ignore_ascii_case(wanted)),
            None => true,
        };
        let ids: Vec<Uuid> =
            self.index.lock().iter().rev().filter(matches).take(limit).map(|entry| entry.id).collect();
        let mut mails = Vec::with_capacity(ids.len());
        for id in ids {
            mails.extend(self.get(id).await?);
        }
        Ok(mails)
    }

    /// Returns one mail, or `None` if it is unknown or was deleted.
    pub(super) async fn get(&self, id: Uuid) -> Result<Option<Mail>, MailboxError> {
        Ok(self.read(id).await?.map(|(stored, mail)| Mail::parse(id, stored, &mail)))
    }

    /// Deletes all mails.
    pub(super) async fn clear(&self) {
        let entries = std::mem::take(&mut *self.index.lock());
        for entry in entries {
            self.remove(entry.id).await;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.index.lock().len()
    }

    /// Adds a stored mail to the index and deletes the oldest mails beyond `mails_max`.
    async fn add_to_index(&self, entry: IndexEntry) {
        let mut old = Vec::new();
        {
            let mut index = self.index.lock();
            index.push_back(entry);
            while index.len() > self.mails_max {
                old.extend(index.pop_front());
            }
        }
        for entry in old {
            self.remove(entry.id).await;
        }
    }

    async fn remove(&self, id: Uuid) {
        remove_file(&self.path(id)).await;
    }

    async fn ids_on_disk(&self) -> Result<Vec<Uuid>, MailboxError> {
        let failed = failed("read", &self.folder);
        let mut names = fs::read_dir(&self.folder).await.map_err(&failed)?;
        let mut ids = Vec::new();
        while let Some(name) = names.next_entry().await.map_err(&failed)? {
            let name = name.file_name();
            let Some((stem, end)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
            let Ok(id) = Uuid::parse_str(stem) else { continue };
            match end {
                "eml" => ids.push(id),
                // An earlier process died while it wrote this file. The client received no 250 and sends the mail again.
                PARTIAL_EXTENSION => remove_file(&self.partial_path(id)).await,
                _ => {}
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// Returns the envelope and the mail, or `None` if the file is missing or was not written by a catcher.
    async fn read(&self, id: Uuid) -> Result<Option<(StoredEnvelope, Vec<u8>)>, MailboxError> {
        let path = self.path(id);
        let file = match fs::read(&path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        Ok(parse_file(&file))
    }

    fn path(&self, id: Uuid) -> PathBuf {
        self.folder.join(format!("{}.eml", id.hyphenated()))
    }

    /// Returns the temporary path of a mail that is still being written.
    fn partial_path(&self, id: Uuid) -> PathBuf {
        self.path(id).with_extension(PARTIAL_EXTENSION)
    }
}

async fn remove_file(path: &Path) {
    if let Err(error) = fs::remove_file(path).await {
        tracing::warn!(%error, path = %path.display(), "failed to delete a mail file");
    }
}

fn parse_file(file: &[u8]) -> Option<(StoredEnvelope, Vec<u8>)> {
    let rest = file.strip_prefix(ENVELOPE_HEADER.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let (line, mail) = rest.split_at_checked(end + 1)?;
    Some((serde_json::from_slice(line).ok()?, mail.to_vec()))
}

fn failed(attempt: &'static str, path: &Path) -> impl Fn(io::Error) -> MailboxError {
    let path = path.to_owned();
    move |source| MailboxError { attempt, path: path.clone(), source }
}
