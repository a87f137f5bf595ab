//! Lifecycle of a session: it is open, then paid, declined, canceled by the customer or expired. Each transition creates
//! the webhook events that a merchant receives at Stripe.

use onsale_types::Timestamp;
use uuid::Uuid;

use super::{
    Shared,
    journal::JournalError,
    records::{Change, Event, IntentStatus, Session, SessionStatus},
    stripe_json,
};

/// Actions that end an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionAction {
    Pay,
    /// The customer's bank declines the payment finally.
    Decline,
    /// The customer cancels on the checkout page.
    Cancel,
    /// The session expires, or the merchant ends it.
    Expire,
}

/// Reasons for a refused action.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActionError {
    #[error("the checkout session does not exist")]
    NotFound,
    #[error("the checkout session is no longer open")]
    NotOpen(Box<Session>),
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Session {
    pub(super) fn is_paid(&self) -> bool {
        self.intent.status == IntentStatus::Succeeded
    }

    /// Returns the session after `action`, without any check.
    fn after(&self, action: SessionAction) -> Self {
        let mut next = self.clone();
        (next.status, next.intent.status) = match action {
            SessionAction::Pay => (SessionStatus::Complete, IntentStatus::Succeeded),
            SessionAction::Decline => (SessionStatus::Complete, IntentStatus::RequiresPaymentMethod),
            SessionAction::Cancel | SessionAction::Expire => (SessionStatus::Expired, IntentStatus::Canceled),
        };
        next.intent.by_customer = action == SessionAction::Cancel;
        next
    }

    /// Returns the session after `action` and the new events. A repeated action succeeds without events; any other action
    /// on an ended session fails.
    fn transition(&self, action: SessionAction, now_seconds: i64) -> Result<(Self, Vec<Event>), ActionError> {
        let next = self.after(action);
        if *self == next {
            return Ok((next, Vec::new()));
        }
        if self.status != SessionStatus::Open {
            return Err(ActionError::NotOpen(Box::new(self.clone())));
        }
        let session = || stripe_json::session(&next, None);
        let intent = || stripe_json::intent(&next);
        let payloads = match action {
            SessionAction::Pay => {
                vec![("payment_intent.succeeded", intent()), ("checkout.session.completed", session())]
            }
            // The first event is complete but unpaid, as for delayed payment methods: merchants must check both fields.
            SessionAction::Decline => vec![
                ("checkout.session.completed", session()),
                ("checkout.session.async_payment_failed", session()),
            ],
            SessionAction::Cancel => vec![("payment_intent.canceled", intent())],
            SessionAction::Expire => vec![("checkout.session.expired", session())],
        };
        let events =
            payloads.into_iter().map(|(kind, object)| new_event(kind, &object, now_seconds)).collect();
        Ok((next, events))
    }
}

impl Shared {
    /// Applies an action to a session, records it and sends its events. Idempotent.
    pub(super) fn act(&self, session_id: &str, action: SessionAction) -> Result<Session, ActionError> {
        self.expire_due();
        let now = self.now_seconds();
        let changed = self.state.change(|data| {
            let session = data.sessions.get(session_id).ok_or(ActionError::NotFound);
            match session.and_then(|session| session.transition(action, now)) {
                Ok((session, events)) => {
                    let mut changes = vec![Change::Session(session.clone())];
                    changes.extend(events.iter().cloned().map(Change::Event));
                    (changes, Ok((session, events)))
                }
                Err(error) => (Vec::new(), Err(error)),
            }
        })?;
        let (session, events) = changed?;
        self.webhooks.send_all(events);
        Ok(session)
    }

    /// Expires all due sessions.
    pub(super) fn expire_due(&self) {
        let now = self.now_seconds();
        let ended = self.state.change(|data| {
            let (mut changes, mut created) = (Vec::new(), Vec::new());
            for (session, events) in
                data.due(now).filter_map(|due| due.transition(SessionAction::Expire, now).ok())
            {
                changes.push(Change::Session(session));
                changes.extend(events.iter().cloned().map(Change::Event));
                created.extend(events);
            }
            (changes, created)
        });
        match ended {
            Ok(events) => self.webhooks.send_all(events),
            Err(error) => tracing::error!(%error, "failed to expire sessions, retrying in 1 s"),
        }
    }

    pub(super) fn now_seconds(&self) -> i64 {
        seconds(self.clock.now())
    }
}

/// Creates an event of type `kind` about `object`.
pub(super) fn new_event(kind: &str, object: &serde_json::Value, now_seconds: i64) -> Event {
    let id = new_id("evt");
    let body = serde_json::json!({
        "id": id, "object": "event", "type": kind, "created": now_seconds, "livemode": false,
        "data": { "object": object },
    });
    Event { id, body: body.to_string() }
}

/// Creates an id in Stripe's format. Later ids sort after earlier ones.
pub(super) fn new_id(prefix: &str) -> String {
    format!("{prefix}_test_{}", Uuid::now_v7().simple())
}

pub(super) fn seconds(time: Timestamp) -> i64 {
    time.to_seconds_and_nanos().0
}
