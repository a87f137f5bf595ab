//! Conversions between the contracts and the domain. No other module builds or reads protobuf messages.

pub(crate) mod clients;
pub(crate) mod events;
pub(crate) mod requests;
pub(crate) mod responses;
