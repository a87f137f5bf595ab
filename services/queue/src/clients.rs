//! Calls to neighbors.

pub(crate) mod inventory;
