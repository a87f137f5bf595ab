//! What tickets are and what may happen to them. Pure: no I/O, no clock, no wire format.

pub mod code;
pub mod document;
pub mod event;
pub mod generation;
pub mod order;
pub mod ticket;

mod pdf;
mod qr;
