//! Rules and types of Notification: contents of mails, confirmations of orders, and retries of deliveries. Pure: no I/O, no
//! clock, no wire format.

pub(crate) mod content;
pub(crate) mod dead_letter;
pub(crate) mod delivery;
pub(crate) mod format;
pub(crate) mod job;
pub(crate) mod language;
pub(crate) mod mail;
pub(crate) mod order;
mod qr;
pub(crate) mod text;
