//! SQL statements, row readers and Redis channel names of Payment. Takes and returns domain types.

pub(crate) mod keys;
pub(crate) mod payments;
mod rows;
pub(crate) mod webhooks;
