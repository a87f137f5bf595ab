//! All that a provider knows, in memory, with its journal: what is decided on it and what is written are one step.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use parking_lot::Mutex;

use super::{
    journal::{Journal, JournalError},
    records::{Change, Event, IdempotentResponse, Refund, Session, SessionStatus},
};

/// What is known now.
#[derive(Default)]
pub(super) struct ProviderData {
    pub(super) sessions: BTreeMap<String, Session>,
    /// By the payment they give back: one each.
    pub(super) refunds: BTreeMap<String, Refund>,
    pub(super) responses: BTreeMap<String, IdempotentResponse>,
    /// Open sessions by the time when they end.
    open_by_expiry: BTreeSet<(i64, String)>,
    /// Sessions by their payment.
    session_ids_by_intent: BTreeMap<String, String>,
    /// Events that were not taken yet.
    undelivered: BTreeMap<String, Event>,
}

impl ProviderData {
    /// The session whose payment is `intent`.
    pub(super) fn session_of_intent(&self, intent: &str) -> Option<&Session> {
        self.sessions.get(self.session_ids_by_intent.get(intent)?)
    }

    /// Open sessions whose time is over.
    pub(super) fn due(&self, now_seconds: i64) -> impl Iterator<Item = &Session> {
        let due = self.open_by_expiry.iter().take_while(move |(expires_at, _)| *expires_at <= now_seconds);
        due.filter_map(|(_, id)| self.sessions.get(id))
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Session(session) => {
                let key = (session.expires_at, session.id.clone());
                if session.status == SessionStatus::Open {
                    self.open_by_expiry.insert(key);
                } else {
                    self.open_by_expiry.remove(&key);
                }
                self.session_ids_by_intent.insert(session.intent.id.clone(), session.id.clone());
                self.sessions.insert(session.id.clone(), session);
            }
            Change::Refund(refund) => {
                self.refunds.insert(refund.payment_intent.clone(), refund);
            }
            Change::Response(response) => {
                self.responses.insert(response.key.clone(), response);
            }
            Change::Event(event) => {
                self.undelivered.insert(event.id.clone(), event);
            }
            Change::EventClosed(event_id) => {
                self.undelivered.remove(&event_id);
            }
        }
    }
}

/// The book. Its lock is held for decisions and for one short write, never over a wait.
pub(super) struct ProviderState {
    journaled: Mutex<Journaled>,
}

struct Journaled {
    data: ProviderData,
    journal: Option<Journal>,
}

impl ProviderState {
    /// Opens the book at `path`; without one it is a book in memory.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, JournalError> {
        let mut data = ProviderData::default();
        let mut journal = None;
        if let Some(path) = path {
            let (opened, changes) = Journal::open(path)?;
            changes.into_iter().for_each(|change| data.apply(change));
            journal = Some(opened);
        }
        Ok(Self { journaled: Mutex::new(Journaled { data, journal }) })
    }

    /// Reads the book.
    pub(super) fn read<T>(&self, read: impl FnOnce(&ProviderData) -> T) -> T {
        read(&self.journaled.lock().data)
    }

    /// Lets `decide` say what changes, writes it down, and only then makes it so.
    pub(super) fn change<T>(
        &self,
        decide: impl FnOnce(&ProviderData) -> (Vec<Change>, T),
    ) -> Result<T, JournalError> {
        let mut journaled = self.journaled.lock();
        let (changes, outcome) = decide(&journaled.data);
        if changes.is_empty() {
            return Ok(outcome);
        }
        if let Some(journal) = &mut journaled.journal {
            journal.append(&changes)?;
        }
        changes.into_iter().for_each(|change| journaled.data.apply(change));
        Ok(outcome)
    }

    /// The events that were not taken yet.
    pub(super) fn undelivered(&self) -> Vec<Event> {
        self.read(|data| data.undelivered.values().cloned().collect())
    }
}
