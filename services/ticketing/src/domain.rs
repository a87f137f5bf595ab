//! Rules of generations, orders, tickets and check-ins. Pure: no I/O, no clock, no wire format.

pub mod code;

pub(crate) mod check_in;
pub(crate) mod document;
pub(crate) mod event;
pub(crate) mod generation;
pub(crate) mod order;
pub(crate) mod ticket;
pub(crate) mod ticketing_event;

mod pdf;
mod qr;
