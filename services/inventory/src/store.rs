//! Rows in Postgres, which are the truth, and pools of free units in Redis, which can be rebuilt from them.

pub(crate) mod events;
pub(crate) mod holds;
pub(crate) mod invitations;
pub mod keys;
pub(crate) mod pools;
pub(crate) mod quotas;
pub(crate) mod stocks;

use onsale_storage::postgres::row::SqlCount;

/// Unit numbers as an array parameter.
fn unit_array(units: &[u32]) -> Vec<SqlCount<u32>> {
    units.iter().copied().map(SqlCount).collect()
}
