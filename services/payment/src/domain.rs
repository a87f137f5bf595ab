//! Rules of a payment, decided without I/O. The first rule: money that was taken ends in tickets or is refunded, even if
//! reports about it arrive late, twice or out of order.

mod claim;
mod commands;
mod payment;
mod payment_event;
mod refund;

pub(crate) use claim::{Claim, ClaimState, EventSummary, Verdict};
pub(crate) use commands::{CreatePayment, HandleWebhook, PaymentLookup, RefundPayment, Viewer};
pub(crate) use payment::{
    FailureReason, NewPayment, Payment, PaymentState, PaymentStep, Provider, ProviderUpdate,
};
pub(crate) use payment_event::PaymentEvent;
pub(crate) use refund::{Refund, RefundReason, RefundState};
