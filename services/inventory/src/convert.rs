//! Conversions between the contract and the domain; no other module builds or reads protobuf messages. Requests are checked in
//! form, and every violation is reported together.

pub(crate) mod events;
pub(crate) mod requests;
pub(crate) mod responses;
