//! What may happen to a payment, decided without I/O. The one rule above all: money that was taken ends in tickets or goes
//! back, whatever comes late, twice or in another order.

mod claim;
mod payment;
mod refund;

pub use claim::{Claim, ClaimState, EventSummary, Verdict};
pub use payment::{Fact, FailureReason, NewPayment, Payment, Provider, State, Step};
pub use refund::{Refund, RefundReason, RefundState};
