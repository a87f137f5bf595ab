//! Conversions between the contract's messages and the domain's types. No other module builds or reads a message.

pub(crate) mod clients;
pub(crate) mod events;
pub(crate) mod external;
pub(crate) mod requests;
pub(crate) mod responses;
