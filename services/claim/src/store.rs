//! What Claim keeps, all of it in Postgres: SQL in, domain types out. Redis carries its events and nothing else.

pub mod allowances;
pub mod claims;
pub mod entrance;
pub mod hold_attempts;

mod row;
