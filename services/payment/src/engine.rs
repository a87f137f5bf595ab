//! Machinery that the use cases share.
//!
//! ```text
//! use case ─▶ PaymentChanges ─▶ store (row, refund, next step) + outbox (event)   in one transaction
//!                   │
//!                   └─ after the commit ─▶ outbox relay
//!                                      ─▶ WorkerHints ─▶ the worker of the next step
//!                                      ─▶ Redis channel of the payment ─▶ open WatchPayment streams
//! ```
//!
//! A lost hint only adds delay: the relay, the workers and the watchers also poll.

mod payment_changes;
mod worker_hints;

pub(crate) use payment_changes::{PaymentChanges, RecordedChange, StepDelays};
pub(crate) use worker_hints::WorkerHints;
