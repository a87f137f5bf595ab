//! Whom Queue asks.

pub(crate) mod inventory;
