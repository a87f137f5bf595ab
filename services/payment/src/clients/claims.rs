//! Claim: what is to be paid, and what becomes of it once it is.

use onsale_kit::{client::Channel, error::Violations};
use onsale_proto::claim::v1::{
    ConfirmClaimRequest, ErrorReason, ExtendClaimRequest, GetClaimRequest,
    claim_internal_service_client::ClaimInternalServiceClient, claim_service_client::ClaimServiceClient,
};
use onsale_types::{ClaimId, RequestId};

use super::neighbor::{NeighborError, has_reason};
use crate::{
    convert,
    domain::{Claim, Payment, RefundReason, Verdict},
};

/// Calls Claim. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Claims {
    claims: ClaimServiceClient<Channel>,
    internal: ClaimInternalServiceClient<Channel>,
}

impl Claims {
    /// Calls over `channel`.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self {
            claims: ClaimServiceClient::new(channel.clone()),
            internal: ClaimInternalServiceClient::new(channel),
        }
    }

    /// A claim; `None` when there is no such one.
    pub async fn get(&self, id: ClaimId) -> Result<Option<Claim>, NeighborError> {
        const ATTEMPT: &str = "get the claim";
        let request = GetClaimRequest { claim_id: id.to_string() };
        let answer = match self.claims.clone().get_claim(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if has_reason(&status, ErrorReason::ClaimNotFound.as_str_name()) => return Ok(None),
            Err(status) => return Err(NeighborError::status(ATTEMPT)(status)),
        };
        convert::claim(answer.claim).map(Some).map_err(NeighborError::answer(ATTEMPT))
    }

    /// Gives the claim of a payment that begins more time, as far as it may have any. Idempotent.
    pub async fn extend(&self, payment: &Payment) -> Result<(), NeighborError> {
        let request = ExtendClaimRequest {
            request_id: RequestId::derive(payment.id.as_uuid(), "extend-claim").to_string(),
            claim_id: payment.claim_id.to_string(),
            payment_id: payment.id.to_string(),
        };
        let answer = self.internal.clone().extend_claim(request).await;
        answer.map(drop).map_err(NeighborError::status("extend the claim"))
    }

    /// Has the claim of a confirmed payment served. Idempotent.
    pub async fn confirm(&self, payment: &Payment) -> Result<Verdict, NeighborError> {
        const ATTEMPT: &str = "confirm the claim";
        let request = ConfirmClaimRequest {
            request_id: RequestId::derive(payment.id.as_uuid(), "confirm-claim").to_string(),
            claim_id: payment.claim_id.to_string(),
            payment_id: payment.id.to_string(),
            amount: Some(convert::money(payment.amount)),
        };
        let status = match self.internal.clone().confirm_claim(request).await {
            Ok(answer) => {
                let claim = convert::claim(answer.into_inner().claim);
                let verdict = claim.and_then(|claim| {
                    let mut violations = Violations::new();
                    let verdict = violations.require("claim.state", claim.verdict(payment.id));
                    violations.build(|| verdict)
                });
                return verdict.map_err(NeighborError::answer(ATTEMPT));
            }
            Err(status) => status,
        };
        if has_reason(&status, ErrorReason::ClaimPaidByAnother.as_str_name()) {
            return Ok(Verdict::Refund(RefundReason::Duplicate));
        }
        let cannot_be_served = [ErrorReason::AmountMismatch, ErrorReason::ClaimNotFound];
        if cannot_be_served.iter().any(|reason| has_reason(&status, reason.as_str_name())) {
            tracing::error!(payment_id = %payment.id, %status, "claim cannot be served, the money goes back");
            return Ok(Verdict::Refund(RefundReason::ClaimRejected));
        }
        Err(NeighborError::status(ATTEMPT)(status))
    }
}
