//! Those who carry messages to people, each behind a small trait.

pub mod smtp;

use crate::domain::{mail::Mail, text::EmailAddress};

/// A mail with its addresses.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// To whom.
    pub to: EmailAddress,
    /// What names it among all mails; the same on every attempt, so that a repeat can be seen to be one.
    pub message_key: String,
    /// What it says.
    pub mail: Mail,
}

/// Why a mail was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SendError {
    /// A sentence for a person.
    pub message: String,
    /// Whether every other attempt would fail the same way.
    pub is_hopeless: bool,
}

/// Carries mail.
#[tonic::async_trait]
pub trait Mailer: Send + Sync + 'static {
    /// Its name, as attempts remember it.
    fn name(&self) -> &'static str;

    /// Hands a mail over; answers the provider's name for it. An error means that it was probably not taken.
    async fn send(&self, mail: &Outgoing) -> Result<Option<String>, SendError>;
}
