//! The kept mails: one file each, the newest so many. A file appears whole or not at all.

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

const LISTED_DEFAULT: usize = 50;
const LISTED_MAX: usize = 500;
/// Before the mail itself: who sent it to whom, which the mail does not say.
const ENVELOPE_HEADER: &str = "X-Catcher-Envelope: ";
/// How the name of a file ends that is not whole yet.
const PARTIAL_EXTENSION: &str = "tmp";

/// What went wrong with the folder.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt} {}", path.display())]
pub struct MailboxError {
    attempt: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Which mails are asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Query {
    /// Only mails to this address, in either case.
    pub to: Option<String>,
    /// At most so many; 50 unless said, 500 at most.
    pub limit: Option<usize>,
}

/// Who sends a mail to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    pub(super) from: String,
    pub(super) to: Vec<String>,
}

/// An envelope and when it came: what stands in the file before the mail.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredEnvelope {
    pub(super) from: String,
    pub(super) to: Vec<String>,
    pub(super) time: Timestamp,
}

/// What is known without opening the file.
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
    /// Oldest first.
    index: Mutex<VecDeque<IndexEntry>>,
}

impl Mailbox {
    /// Reads what an earlier catcher left in `folder`.
    pub(super) async fn open(
        folder: PathBuf,
        mails_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, MailboxError> {
        fs::create_dir_all(&folder).await.map_err(failed("make", &folder))?;
        let mailbox = Self { folder, mails_max, clock, index: Mutex::default() };
        for id in mailbox.ids_on_disk().await? {
            // A file that is not ours has no stored; it stays and is not shown.
            if let Some((stored, _)) = mailbox.read(id).await? {
                mailbox.add_to_index(IndexEntry { id, to: stored.to }).await;
            }
        }
        Ok(mailbox)
    }

    /// Keeps a mail and names it. Later names sort after earlier ones.
    pub(super) async fn store(&self, envelope: Envelope, mail: &[u8]) -> Result<Uuid, MailboxError> {
        let id = Uuid::now_v7();
        let stored = StoredEnvelope { from: envelope.from, to: envelope.to, time: self.clock.now() };
        let path = self.path(id);
        let json = serde_json::to_string(&stored)
            .map_err(|source| failed("describe", &path)(io::Error::other(source)))?;
        let mut file = format!("{ENVELOPE_HEADER}{json}\r\n").into_bytes();
        file.extend_from_slice(mail);
        let partial = self.partial_path(id);
        fs::write(&partial, file).await.map_err(failed("write", &partial))?;
        fs::rename(&partial, &path).await.map_err(failed("name", &path))?;
        self.add_to_index(IndexEntry { id, to: stored.to }).await;
        Ok(id)
    }

    /// The mails that fit `query`, newest first.
    pub(super) async fn list(&self, query: &Query) -> Result<Vec<Mail>, MailboxError> {
        let limit = query.limit.unwrap_or(LISTED_DEFAULT).min(LISTED_MAX);
        let fits = |entry: &&IndexEntry| match &query.to {
            Some(wanted) => entry.to.iter().any(|to| to.eq_ignore_ascii_case(wanted)),
            None => true,
        };
        let ids: Vec<Uuid> =
            self.index.lock().iter().rev().filter(fits).take(limit).map(|entry| entry.id).collect();
        let mut mails = Vec::with_capacity(ids.len());
        for id in ids {
            mails.extend(self.get(id).await?);
        }
        Ok(mails)
    }

    /// One mail; none when it is unknown or has given way.
    pub(super) async fn get(&self, id: Uuid) -> Result<Option<Mail>, MailboxError> {
        Ok(self.read(id).await?.map(|(stored, mail)| Mail::parse(id, stored, &mail)))
    }

    /// Forgets all mails.
    pub(super) async fn clear(&self) {
        let entries = std::mem::take(&mut *self.index.lock());
        for entry in entries {
            self.remove(entry.id).await;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.index.lock().len()
    }

    /// Notes a mail that has its file; the oldest beyond the bound give way.
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
                // A catcher died while it wrote this; its client heard no 250 and will send it again.
                PARTIAL_EXTENSION => remove_file(&self.partial_path(id)).await,
                _ => {}
            }
        }
        ids.sort();
        Ok(ids)
    }

    /// The stored and the mail of a file; none when there is no such file of ours.
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

    /// Where a mail is written until it is whole.
    fn partial_path(&self, id: Uuid) -> PathBuf {
        self.path(id).with_extension(PARTIAL_EXTENSION)
    }
}

async fn remove_file(path: &Path) {
    if let Err(error) = fs::remove_file(path).await {
        tracing::warn!(%error, path = %path.display(), "failed to remove a mail");
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
