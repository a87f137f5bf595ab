//! SQL statements of Notification. Takes and returns domain types. Notification stores nothing in Redis.

pub(crate) mod dead_letters;
pub(crate) mod deliveries;
pub(crate) mod event_owners;
pub(crate) mod jobs;
pub(crate) mod waiting_orders;
