//! What Notification decides: what a message says, when an order is ready to be told, when a delivery is tried again.
//! Pure: no I/O, no clock, no wire format.

pub mod content;
pub mod delivery;
pub mod format;
pub mod job;
pub mod language;
pub mod mail;
pub mod order;
mod qr;
pub mod text;
