//! Invitation tokens: what an invitee got by mail, and shows instead of a turn. Never logged.

use onsale_kit::auth::{KeyError, KeySet, SigningKey, TokenFields, TokenReader, TokenSigner};
use onsale_types::{EventId, InvitationId, QuotaId};
use serde::{Deserialize, Serialize};

use crate::{
    config::InvitationsConfig,
    domain::{invitation::Invitation, quota::Quota},
    error::Error,
};

/// Who signs.
const ISSUER: &str = "inventory";
/// What it is for: no turn, no sign-in and no ticket can be shown as one.
const AUDIENCE: &str = "onsale-invitation";

/// What a token says. Whether the invitation is worth anything is said by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::app) struct InvitationClaims {
    pub(in crate::app) invitation_id: InvitationId,
    pub(in crate::app) quota_id: QuotaId,
    pub(in crate::app) event_id: EventId,
}

/// Signs and reads invitation tokens.
pub struct InvitationTokens {
    signer: TokenSigner,
    reader: TokenReader,
    accept_page: String,
}

impl InvitationTokens {
    /// With the key of `config`.
    pub fn new(config: &InvitationsConfig) -> Result<Self, KeyError> {
        let signer = TokenSigner::new(SigningKey::parse(config.signing_key.expose())?, ISSUER);
        let reader = TokenReader::new(KeySet::parse(&signer.jwks())?, ISSUER, AUDIENCE);
        Ok(Self { signer, reader, accept_page: config.accept_page.clone() })
    }

    /// Where `invitation` is accepted. The token stands in the fragment, which no browser sends to a server: it is in no
    /// log on the way.
    pub(super) fn accept_url(&self, invitation: &Invitation, quota: &Quota) -> Result<String, Error> {
        let claims =
            InvitationClaims { invitation_id: invitation.id, quota_id: quota.id, event_id: quota.event_id };
        let subject = invitation.id.to_string();
        let facts = TokenFields { audience: AUDIENCE, subject: &subject, expiry: quota.return_time };
        Ok(format!("{}#token={}", self.accept_page, self.signer.sign(&facts, &claims)?))
    }

    /// What `token` says, if it is ours. By which clock it has ended is asked of the database.
    pub(in crate::app) fn read(&self, token: &str) -> Result<InvitationClaims, Error> {
        let read = self.reader.read::<InvitationClaims>(token);
        Ok(read.map_err(|_fault| Error::InvitationTokenInvalid)?.claims)
    }
}

impl std::fmt::Debug for InvitationTokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("InvitationTokens").finish_non_exhaustive()
    }
}
