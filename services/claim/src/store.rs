//! What Claim keeps, all of it in Postgres: SQL in, domain types out. Redis carries its events and nothing else.

pub mod allowance;
pub mod claim;
pub mod entrance;
pub mod hold;

mod row;
