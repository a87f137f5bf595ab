//! Metrics of Inventory, besides those of the chassis.

const PROPOSALS: &str = "inventory_proposals_total";
const CONFLICTS: &str = "inventory_conflicts_total";
const CORRECTED: &str = "inventory_pool_corrected_units_total";
const EXPIRED: &str = "inventory_holds_expired_total";
const INVITED: &str = "inventory_invitations_total";
const RETURNED: &str = "inventory_quota_returned_units_total";

/// Registers the help texts; called once at start.
pub(crate) fn describe() {
    metrics::describe_counter!(PROPOSALS, "Selections with proposed units, by origin: redis or postgres.");
    metrics::describe_counter!(CONFLICTS, "Reservations that proposed a unit which was taken.");
    metrics::describe_counter!(CORRECTED, "Units in which a Redis pool differed from Postgres.");
    metrics::describe_counter!(EXPIRED, "Holds released at their expiry.");
    metrics::describe_counter!(INVITED, "Invitations sent.");
    metrics::describe_counter!(RETURNED, "Units that quotas returned to the public sale.");
}

pub(crate) fn proposed(origin: &'static str, selections: usize) {
    metrics::counter!(PROPOSALS, "origin" => origin).increment(u64::try_from(selections).unwrap_or(u64::MAX));
}

pub(crate) fn conflicted() {
    metrics::counter!(CONFLICTS).increment(1);
}

pub(crate) fn corrected(units: usize) {
    metrics::counter!(CORRECTED).increment(u64::try_from(units).unwrap_or(u64::MAX));
}

pub(crate) fn expired(holds: usize) {
    metrics::counter!(EXPIRED).increment(u64::try_from(holds).unwrap_or(u64::MAX));
}

pub(crate) fn invited(invitations: usize) {
    metrics::counter!(INVITED).increment(u64::try_from(invitations).unwrap_or(u64::MAX));
}

pub(crate) fn returned(units: usize) {
    metrics::counter!(RETURNED).increment(u64::try_from(units).unwrap_or(u64::MAX));
}
