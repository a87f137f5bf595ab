//! Invitation tokens: signed tokens that invitees get by mail and show instead of a turn. Never logged.

use onsale_kit::auth::{KeyError, KeySet, SigningKey, TokenFields, TokenReader, TokenSigner};
use onsale_types::{EventId, InvitationId, QuotaId};
use serde::{Deserialize, Serialize};

use crate::{
    config::InvitationsConfig,
    domain::{invitation::Invitation, quota::Quota},
    error::Error,
};

const ISSUER: &str = "inventory";
/// Differs from the audiences of turns, sign-ins and tickets, so that none of those passes for an invitation.
const AUDIENCE: &str = "onsale-invitation";

/// The payload of a token. The row of the invitation decides whether it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InvitationClaims {
    pub(crate) invitation_id: InvitationId,
    pub(crate) quota_id: QuotaId,
    pub(crate) event_id: EventId,
}

/// Signs and verifies invitation tokens.
pub(crate) struct InvitationTokens {
    signer: TokenSigner,
    reader: TokenReader,
    accept_page: String,
}

impl InvitationTokens {
    pub(crate) fn new(config: &InvitationsConfig) -> Result<Self, KeyError> {
        let signer = TokenSigner::new(SigningKey::parse(config.signing_key.expose())?, ISSUER);
        let reader = TokenReader::new(KeySet::parse(&signer.jwks())?, ISSUER, AUDIENCE);
        Ok(Self { signer, reader, accept_page: config.accept_page.clone() })
    }

    /// Returns the URL at which `invitation` is accepted. The token is in the fragment, which browsers do not send to servers,
    /// so it appears in no access log.
    pub(crate) fn accept_url(&self, invitation: &Invitation, quota: &Quota) -> Result<String, Error> {
        let claims =
            InvitationClaims { invitation_id: invitation.id, quota_id: quota.id, event_id: quota.event_id };
        let subject = invitation.id.to_string();
        let facts = TokenFields { audience: AUDIENCE, subject: &subject, expiry: quota.return_time };
        Ok(format!("{}#token={}", self.accept_page, self.signer.sign(&facts, &claims)?))
    }

    /// Verifies the signature of `token` and returns its payload. The expiry is not checked here: the database's clock decides
    /// it.
    pub(crate) fn read(&self, token: &str) -> Result<InvitationClaims, Error> {
        let read = self.reader.read::<InvitationClaims>(token);
        Ok(read.map_err(|_invalid| Error::InvitationTokenInvalid)?.claims)
    }
}
