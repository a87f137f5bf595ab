//! Client of Claim: reads, extends and confirms claims.

use onsale_kit::client::Channel;
use onsale_proto::claim::v1::{
    ErrorReason, claim_internal_service_client::ClaimInternalServiceClient,
    claim_service_client::ClaimServiceClient,
};
use onsale_types::ClaimId;

use super::neighbor::{NeighborError, has_reason};
use crate::{
    convert::clients as convert,
    domain::{Claim, Payment, RefundReason, Verdict},
};

/// Clones share the connections.
#[derive(Clone, Debug)]
pub(crate) struct ClaimClient {
    claims: ClaimServiceClient<Channel>,
    internal: ClaimInternalServiceClient<Channel>,
}

impl ClaimClient {
    pub(crate) fn new(channel: Channel) -> Self {
        Self {
            claims: ClaimServiceClient::new(channel.clone()),
            internal: ClaimInternalServiceClient::new(channel),
        }
    }

    /// Returns a claim, or `None` if Claim does not know it.
    pub(crate) async fn get_claim(&self, claim_id: ClaimId) -> Result<Option<Claim>, NeighborError> {
        const ATTEMPT: &str = "get the claim";
        let response = match self.claims.clone().get_claim(convert::get_claim(claim_id)).await {
            Ok(response) => response.into_inner(),
            Err(status) if has_reason(&status, ErrorReason::ClaimNotFound.as_str_name()) => return Ok(None),
            Err(status) => return Err(NeighborError::status(ATTEMPT)(status)),
        };
        convert::claim(response.claim).map(Some).map_err(NeighborError::response(ATTEMPT))
    }

    /// Asks Claim to extend the claim of a new payment, as far as its limits allow. Idempotent.
    pub(crate) async fn extend_claim(&self, payment: &Payment) -> Result<(), NeighborError> {
        let response = self.internal.clone().extend_claim(convert::extend_claim(payment)).await;
        response.map(drop).map_err(NeighborError::status("extend the claim"))
    }

    /// Asks Claim to confirm the claim with a confirmed payment. Idempotent.
    pub(crate) async fn confirm_claim(&self, payment: &Payment) -> Result<Verdict, NeighborError> {
        const ATTEMPT: &str = "confirm the claim";
        let status = match self.internal.clone().confirm_claim(convert::confirm_claim(payment)).await {
            Ok(response) => {
                let verdict = convert::verdict(response.into_inner(), payment.id);
                return verdict.map_err(NeighborError::response(ATTEMPT));
            }
            Err(status) => status,
        };
        if has_reason(&status, ErrorReason::ClaimPaidByAnother.as_str_name()) {
            return Ok(Verdict::Refund(RefundReason::Duplicate));
        }
        let rejections = [ErrorReason::AmountMismatch, ErrorReason::ClaimNotFound];
        if rejections.iter().any(|reason| has_reason(&status, reason.as_str_name())) {
            tracing::error!(payment_id = %payment.id, %status, "claim rejected the payment, refunding it");
            return Ok(Verdict::Refund(RefundReason::ClaimRejected));
        }
        Err(NeighborError::status(ATTEMPT)(status))
    }
}
