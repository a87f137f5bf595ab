//! Claim's tables in Postgres: SQL in, domain types out. In Redis the service keeps nothing but its event streams.

pub(crate) mod allowances;
pub(crate) mod claims;
pub(crate) mod hold_attempts;
pub(crate) mod new_claims;
