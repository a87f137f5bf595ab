//! Commands that `convert` reads from requests and the use cases carry out.

use onsale_types::{ClaimId, CustomerId, OrganizerId, PaymentId, RequestId, Timestamp};

use super::{Provider, RefundReason};

/// Caller of a read or refund. One person may be a customer and an organizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Viewer {
    /// True for a service of the mesh, which may see every payment.
    pub(crate) is_service: bool,
    pub(crate) customer_id: Option<CustomerId>,
    pub(crate) organizer_id: Option<OrganizerId>,
}

#[derive(Clone, Debug)]
pub(crate) struct CreatePayment {
    /// Idempotency key, created by the client. Together with the customer it identifies the request.
    pub(crate) request_id: RequestId,
    pub(crate) claim_id: ClaimId,
    /// `None`: the configured default.
    pub(crate) provider: Option<Provider>,
    /// `None`: the payment's page of our web app.
    pub(crate) return_url: Option<String>,
    /// `None`: the payment's page of our web app.
    pub(crate) cancel_url: Option<String>,
}

/// Selects a payment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PaymentLookup {
    Payment(PaymentId),
    /// The newest payment of the claim.
    Claim(ClaimId),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RefundPayment {
    /// Idempotency key, created by the client. Together with the caller it identifies the request.
    pub(crate) request_id: RequestId,
    pub(crate) payment_id: PaymentId,
    pub(crate) reason: RefundReason,
}

#[derive(Clone, Debug)]
pub(crate) struct HandleWebhook {
    /// The provider whose path received the webhook.
    pub(crate) provider: Provider,
    /// HTTP headers; names in lower case.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    /// Raw body, byte for byte, because the signature covers it.
    pub(crate) body: Vec<u8>,
    /// Time at which the gateway received the webhook.
    pub(crate) receive_time: Timestamp,
}
