//! Jobs: a message to send, its recipient, and the key that keeps it from being sent twice.

use std::time::Duration;

use onsale_types::{CustomerId, JobId, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{content::Content, language::Language, text::EmailAddress};

/// Namespace of the job ids that are derived from a template and a subject key.
const JOB_IDS: Uuid = Uuid::from_u128(0x3f5e_8a0c_7d21_4c0b_9b62_51c7_0de4_a9f6);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recipient {
    /// `None` if only the address is known, as for a person to whom a ticket was transferred.
    pub(crate) customer_id: Option<CustomerId>,
    pub(crate) email: EmailAddress,
    pub(crate) language: Language,
}

/// Time after which a job is no longer sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    At(Timestamp),
    /// This long after the job is stored, by the database's clock.
    After(Duration),
}

impl Expiry {
    /// Expiry of a job from another service that sets none: 24 hours.
    pub(crate) const DEFAULT: Self = Self::After(Duration::from_secs(24 * 60 * 60));
}

/// Job to store, unless it is stored already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewJob {
    pub(crate) job_id: JobId,
    /// Subject of the message, such as an order or a payment. At most one job is stored per template and subject.
    pub(crate) subject_key: String,
    pub(crate) recipient: Recipient,
    pub(crate) content: Content,
    pub(crate) expiry: Expiry,
}

impl NewJob {
    /// Creates the job for a subject. Its id is derived from the template and the subject, so a repeat has the same id.
    pub(crate) fn for_subject(
        subject_key: impl ToString,
        recipient: Recipient,
        content: Content,
        expiry: Expiry,
    ) -> Self {
        let subject_key = subject_key.to_string();
        let template: &'static str = content.template().into();
        let job_id = JobId::from_uuid(Uuid::new_v5(&JOB_IDS, format!("{template}:{subject_key}").as_bytes()));
        Self { job_id, subject_key, recipient, content, expiry }
    }

    /// Creates a job with the id that another service chose. The subject is the job itself, except that the subject of an order
    /// confirmation is its order, so that the events of the order do not cause a second one.
    pub(crate) fn with_id(job_id: JobId, recipient: Recipient, content: Content, expiry: Expiry) -> Self {
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

/// Result of storing jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnqueueResult {
    /// Number of jobs that were new.
    pub(crate) accepted_count: u32,
    /// Number of jobs that were stored before, or whose subject has a job.
    pub(crate) duplicate_count: u32,
    pub(crate) enqueue_time: Timestamp,
}
