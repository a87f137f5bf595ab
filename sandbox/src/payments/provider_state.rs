//! State of the sandbox payment provider in memory, with its journal. Under one lock, [`ProviderState::change`] decides,
//! appends to the journal and applies the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use parking_lot::Mutex;

use super::{
    journal::{Journal, JournalError},
    records::{Change, Event, IdempotentResponse, Refund, Session, SessionStatus},
};

/// All records in memory, with their indexes.
#[derive(Default)]
pub(super) struct ProviderData {
    pub(super) sessions: BTreeMap<String, Session>,
    /// Keyed by payment intent, because a payment can be refunded only once.
    pub(super) refunds: BTreeMap<String, Refund>,
    /// Keyed by idempotency key.
    pub(super) responses: BTreeMap<String, IdempotentResponse>,
    /// Open sessions as (expiry in Unix seconds, session id).
    open_by_expiry: BTreeSet<(i64, String)>,
    session_ids_by_intent: BTreeMap<String, String>,
    /// Events without a closing change, keyed by event id.
    undelivered: BTreeMap<String, Event>,
}

impl ProviderData {
    /// Returns the session of the payment `intent`.
    pub(super) fn session_of_intent(&self, intent: &str) -> Option<&Session> {
        self.sessions.get(self.session_ids_by_intent.get(intent)?)
    }

    /// Returns the open sessions that expire at or before `now_seconds`.
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

/// Provider data with an optional journal. The lock covers a decision and one short file write, never an `await`.
pub(super) struct ProviderState {
    journaled: Mutex<Journaled>,
}

struct Journaled {
    data: ProviderData,
    journal: Option<Journal>,
}

impl ProviderState {
    /// Replays the journal at `path`. `None`: starts empty and keeps no journal.
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

    /// Runs `read` under the lock.
    pub(super) fn read<T>(&self, read: impl FnOnce(&ProviderData) -> T) -> T {
        read(&self.journaled.lock().data)
    }

    /// Runs `decide`, appends its changes to the journal and then applies them. If the journal cannot be written, nothing
    /// changes. An empty list writes nothing.
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

    /// Returns the events that are neither delivered nor abandoned.
    pub(super) fn undelivered(&self) -> Vec<Event> {
        self.read(|data| data.undelivered.values().cloned().collect())
    }
}
