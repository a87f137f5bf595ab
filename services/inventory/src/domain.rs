//! What an event, a unit, a hold and a quota are, and what may happen to them. Pure: decides, and does nothing.

pub mod availability;
pub mod counts;
pub mod event;
pub mod hold;
pub mod invitation;
pub mod layout;
pub mod pick;
pub mod quota;
pub mod unit_set;
