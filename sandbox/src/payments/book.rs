//! All that a provider knows, in memory, with its journal: what is decided on it and what is written are one step.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    journal::{Journal, JournalError},
    model::{Answer, Change, Event, Refund, Session, SessionStatus},
};

/// What is known now.
#[derive(Default)]
pub(super) struct Known {
    pub(super) sessions: BTreeMap<String, Session>,
    /// By the payment they give back: one each.
    pub(super) refunds: BTreeMap<String, Refund>,
    pub(super) answers: BTreeMap<String, Answer>,
    /// Open sessions by the time when they end.
    open: BTreeSet<(i64, String)>,
    /// Sessions by their payment.
    intents: BTreeMap<String, String>,
    /// Events that were not taken yet.
    owed: BTreeMap<String, Event>,
}

impl Known {
    /// The session whose payment is `intent`.
    pub(super) fn session_of_intent(&self, intent: &str) -> Option<&Session> {
        self.sessions.get(self.intents.get(intent)?)
    }

    /// Open sessions whose time is over.
    pub(super) fn due(&self, now_seconds: i64) -> impl Iterator<Item = &Session> {
        let due = self.open.iter().take_while(move |(expires_at, _)| *expires_at <= now_seconds);
        due.filter_map(|(_, id)| self.sessions.get(id))
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Session(session) => {
                let end = (session.expires_at, session.id.clone());
                if session.status == SessionStatus::Open {
                    self.open.insert(end);
                } else {
                    self.open.remove(&end);
                }
                self.intents.insert(session.intent.id.clone(), session.id.clone());
                self.sessions.insert(session.id.clone(), session);
            }
            Change::Refund(refund) => {
                self.refunds.insert(refund.payment_intent.clone(), refund);
            }
            Change::Answer(answer) => {
                self.answers.insert(answer.key.clone(), answer);
            }
            Change::Event(event) => {
                self.owed.insert(event.id.clone(), event);
            }
            Change::Done(event_id) => {
                self.owed.remove(&event_id);
            }
        }
    }
}

/// The book. Its lock is held for decisions and for one short write, never over a wait.
pub(super) struct Book {
    open: Mutex<Open>,
}

struct Open {
    known: Known,
    journal: Option<Journal>,
}

impl Book {
    /// Opens the book at `path`; without one it is a book in memory.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, JournalError> {
        let mut known = Known::default();
        let mut journal = None;
        if let Some(path) = path {
            let (opened, changes) = Journal::open(path)?;
            changes.into_iter().for_each(|change| known.apply(change));
            journal = Some(opened);
        }
        Ok(Self { open: Mutex::new(Open { known, journal }) })
    }

    /// Reads the book.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.lock().known)
    }

    /// Lets `decide` say what changes, writes it down, and only then makes it so.
    pub(super) fn change<T>(
        &self,
        decide: impl FnOnce(&Known) -> (Vec<Change>, T),
    ) -> Result<T, JournalError> {
        let mut open = self.lock();
        let (changes, answer) = decide(&open.known);
        if changes.is_empty() {
            return Ok(answer);
        }
        if let Some(journal) = &mut open.journal {
            journal.append(&changes)?;
        }
        changes.into_iter().for_each(|change| open.known.apply(change));
        Ok(answer)
    }

    /// The events that were not taken yet.
    pub(super) fn undelivered(&self) -> Vec<Event> {
        self.read(|known| known.owed.values().cloned().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
