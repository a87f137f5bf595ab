//! Events that Claim publishes when a claim enters a new stage.

use onsale_types::Timestamp;

use super::{Claim, Stage};

/// An outgoing event, which `convert::events` encodes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimEvent<'a> {
    OrderCompleted {
        claim: &'a Claim,
        time: Timestamp,
    },
    /// `unit_count` units became free with the release.
    ClaimReleased {
        claim: &'a Claim,
        unit_count: u32,
        time: Timestamp,
    },
}

impl<'a> ClaimEvent<'a> {
    /// Returns the event to publish when `claim` has entered its stage at `time`, or `None` for CLAIMED.
    pub(crate) fn of_stage(claim: &'a Claim, time: Timestamp) -> Option<Self> {
        match claim.lifecycle.stage() {
            Stage::Claimed => None,
            Stage::Confirmed => Some(Self::OrderCompleted { claim, time }),
            Stage::Released(_) => Some(Self::ClaimReleased { claim, unit_count: claim.unit_count(), time }),
            // The units of a rejected claim were released before.
            Stage::Rejected => Some(Self::ClaimReleased { claim, unit_count: 0, time }),
        }
    }
}
