//! Machinery that several use cases share.
//!
//! ```text
//!   app: create, confirm, release, expire, reconcile …
//!         │ new lifecycles                │ holds without a claim
//!         ▼                               ▼
//!    ClaimWriter ───── hint ─────▶  HoldReleaser ───▶ Inventory
//!         │                               │
//!   claim, hold_attempt,            hold_attempt
//!   allowance, outbox
//! ```
//!
//! [`ClaimWriter`] is the only code that changes claims: it saves the lifecycle, marks the hold for release and appends the event
//! in one transaction. [`HoldReleaser`] then releases the hold at Inventory; a failed release stays due in `hold_attempt`, and the
//! worker `release holds` retries it.

mod claim_writer;
mod hold_releaser;

pub(crate) use claim_writer::ClaimWriter;
pub(crate) use hold_releaser::HoldReleaser;
