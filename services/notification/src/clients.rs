//! Clients of message providers, each behind a trait, because the providers are not ours to run.

pub(crate) mod smtp;

use crate::domain::{mail::Mail, text::EmailAddress};

/// Mail with its recipient.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingMail {
    pub(crate) to: EmailAddress,
    /// Identifies the mail across attempts, so that recipients' mail servers can recognize a repeat.
    pub(crate) message_key: String,
    pub(crate) mail: Mail,
}

/// Failure to hand a mail over.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct SendError {
    /// Shown to the organizer.
    pub(crate) message: String,
    /// True if every further attempt would fail in the same way.
    pub(crate) is_permanent: bool,
}

#[tonic::async_trait]
pub(crate) trait Mailer: Send + Sync + 'static {
    /// Returns the provider's name, which is stored with each attempt.
    fn name(&self) -> &'static str;

    /// Hands a mail over and returns the id that the provider gave it. After an error the provider has probably, but not certainly,
    /// not accepted the mail.
    async fn send(&self, mail: &OutgoingMail) -> Result<Option<String>, SendError>;
}
