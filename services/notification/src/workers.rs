//! What runs beside the calls: the consumers of other services' events, and the delivery of what is due.

pub(crate) mod consumers;
pub(crate) mod delivery;
pub(crate) mod watch;
