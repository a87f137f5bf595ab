//! What Inventory reports besides what every service does.

const PROPOSALS: &str = "inventory_proposals_total";
const CONFLICTS: &str = "inventory_conflicts_total";
const CORRECTED: &str = "inventory_pool_corrected_units_total";
const EXPIRED: &str = "inventory_holds_expired_total";
const INVITED: &str = "inventory_invitations_total";
const RETURNED: &str = "inventory_quota_returned_units_total";

/// Says what they mean; once, at start.
pub(crate) fn describe() {
    metrics::describe_counter!(
        PROPOSALS,
        "selections for which units were proposed, by origin: redis or postgres"
    );
    metrics::describe_counter!(CONFLICTS, "reservations that proposed a unit which another had");
    metrics::describe_counter!(CORRECTED, "units of which redis thought otherwise than postgres");
    metrics::describe_counter!(EXPIRED, "holds released because nobody paid in time");
    metrics::describe_counter!(INVITED, "invitations sent");
    metrics::describe_counter!(RETURNED, "units of quotas that went to the public sale");
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
