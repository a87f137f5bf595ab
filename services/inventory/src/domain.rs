//! What an event, a unit and a hold are, and what may happen to them. Pure: decides, and does nothing.

pub mod availability;
pub mod event;
pub mod hold;
pub mod layout;
pub mod pick;
pub mod unit_set;
