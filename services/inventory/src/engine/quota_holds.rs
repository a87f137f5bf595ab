//! Effects of ended holds on quotas and invitations, written before the counts change. Without an invited hold, nothing is read
//! or written.

use std::collections::BTreeMap;

use onsale_storage::postgres::Transaction;
use onsale_types::{HoldId, InvitationId, QuotaId};

use super::Engine;
use crate::{
    domain::{
        hold::{Hold, HoldState, Invited},
        invitation::Invitation,
        quota::Quota,
    },
    error::Error,
    store,
};

/// Released holds by the new owner of their units.
#[derive(Debug, Default)]
pub(super) struct ReleasedHolds {
    /// Their units are to be freed; the rows still name the holds.
    pub(super) to_public: Vec<Hold>,
    /// Their rows name the quota again.
    pub(super) to_quota: Vec<Hold>,
}

impl Engine {
    /// Returns the units of `released` holds to their quotas where those are still open, and marks the invitations of `committed`
    /// holds as used. The holds must be locked.
    pub(super) async fn settle_quota_holds(
        &self,
        transaction: &Transaction,
        committed: &[Hold],
        released: Vec<Hold>,
    ) -> Result<ReleasedHolds, Error> {
        let (invited, to_public) = released.into_iter().partition(|hold| hold.invited.is_some());
        let mut sorted = ReleasedHolds { to_public, to_quota: Vec::new() };
        // Every transaction locks quotas in the order of their ids, so that two transactions cannot deadlock.
        for (quota_id, holds) in by_quota(committed, invited) {
            let mut quota = lock(transaction, quota_id).await?;
            for (invitation_id, hold) in holds {
                let mut invitation = lock_invitation(transaction, invitation_id, hold.id).await?;
                match hold.state {
                    HoldState::Committed => quota.unpromise(invitation.use_up(hold.unit_count())),
                    HoldState::Held | HoldState::Released => {
                        release(transaction, &mut quota, &mut invitation, hold, &mut sorted).await?;
                    }
                }
                store::invitations::save(transaction, &invitation).await?;
            }
            store::quotas::save(transaction, &quota).await?;
        }
        Ok(sorted)
    }
}

/// Returns the units of a released hold to its quota if the quota is open.
async fn release(
    transaction: &Transaction,
    quota: &mut Quota,
    invitation: &mut Invitation,
    hold: Hold,
    sorted: &mut ReleasedHolds,
) -> Result<(), Error> {
    invitation.release(quota);
    if quota.release(hold.unit_count()) {
        for item in &hold.items {
            store::quotas::release_units(transaction, quota, hold.id, &item.units).await?;
        }
        sorted.to_quota.push(hold);
    } else {
        sorted.to_public.push(hold);
    }
    Ok(())
}

/// Groups the invited holds by quota.
fn by_quota(committed: &[Hold], released: Vec<Hold>) -> BTreeMap<QuotaId, Vec<(InvitationId, Hold)>> {
    let mut quotas: BTreeMap<QuotaId, Vec<(InvitationId, Hold)>> = BTreeMap::new();
    let committed = committed.iter().filter(|hold| hold.invited.is_some()).cloned();
    for hold in released.into_iter().chain(committed) {
        if let Some(Invited { quota_id, invitation_id }) = hold.invited {
            quotas.entry(quota_id).or_default().push((invitation_id, hold));
        }
    }
    quotas
}

async fn lock(transaction: &Transaction, quota_id: QuotaId) -> Result<Quota, Error> {
    let quota = store::quotas::lock(transaction, quota_id).await?;
    quota.ok_or(Error::Inconsistent { what: "quota of a hold" })
}

async fn lock_invitation(
    transaction: &Transaction,
    invitation_id: InvitationId,
    hold_id: HoldId,
) -> Result<Invitation, Error> {
    let invitation = store::invitations::lock(transaction, invitation_id).await?;
    let invitation = invitation.filter(|invitation| invitation.hold_id == Some(hold_id));
    invitation.ok_or(Error::Inconsistent { what: "invitation of a hold" })
}
