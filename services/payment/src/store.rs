//! What Payment keeps: SQL and the names of Redis channels. Takes and gives back domain types.

pub mod keys;
pub mod payments;
mod rows;
pub mod webhooks;
