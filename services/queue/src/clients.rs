//! Whom Queue asks.

pub mod inventory;
