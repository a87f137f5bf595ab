//! SQL statements, row readers and Redis channel names of Payment. Takes and returns domain types.
//!
//! The labels of statements and transactions are metric label values, so they keep their texts when functions are renamed.

pub(crate) mod keys;
pub(crate) mod payments;
mod rows;
pub(crate) mod webhooks;
