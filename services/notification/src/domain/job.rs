//! A message to send: what, to whom, and what makes it the only one of its kind.

use std::time::Duration;

use onsale_types::{CustomerId, JobId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{content::Content, language::Language, text::EmailAddress};

/// The namespace of ids derived from what a job is about.
const JOBS: Uuid = Uuid::from_u128(0x3f5e_8a0c_7d21_4c0b_9b62_51c7_0de4_a9f6);

/// To whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// The customer, where we know one.
    pub customer_id: Option<CustomerId>,
    /// Their address.
    pub email: EmailAddress,
    /// Their language.
    pub language: Language,
}

/// Until when a job is worth sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Always.
    Never,
    /// Until then.
    At(Timestamp),
    /// For so long from now.
    After(Duration),
}

/// A job that may be new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Its id, the same however often it is made.
    pub job_id: JobId,
    /// What it is about. There is one job of a template about it.
    pub subject_key: String,
    /// To whom.
    pub recipient: Recipient,
    /// What to say.
    pub content: Content,
    /// Until when.
    pub expiry: Expiry,
}

impl NewJob {
    /// The job that says `content` about `subject_key`: whoever makes it gets the same id.
    #[must_use]
    pub fn about(subject_key: impl ToString, recipient: Recipient, content: Content, expiry: Expiry) -> Self {
        let subject_key = subject_key.to_string();
        let name = format!("{}:{subject_key}", content.template().name());
        let job_id = JobId::from_uuid(Uuid::new_v5(&JOBS, name.as_bytes()));
        Self { job_id, subject_key, recipient, content, expiry }
    }

    /// A job that somebody else named. A confirmation is still about its order, so that there is one of each.
    #[must_use]
    pub fn named(job_id: JobId, recipient: Recipient, content: Content, expiry: Expiry) -> Self {
        let subject_key = match &content {
            Content::OrderConfirmation { claim_id, .. } => claim_id.to_string(),
            Content::TicketDelivery { .. }
            | Content::QuotaInvitation { .. }
            | Content::QueueUpdate { .. }
            | Content::QueueYourTurn { .. }
            | Content::Reminder { .. }
            | Content::Refund { .. } => job_id.to_string(),
        };
        Self { job_id, subject_key, recipient, content, expiry }
    }
}
