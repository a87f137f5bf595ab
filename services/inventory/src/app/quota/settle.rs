//! What becomes of a quota and an invitation when a hold of their units ends. Called by whoever ends holds, before the
//! stock is changed; costs nothing where nobody was invited.

use std::collections::BTreeMap;

use onsale_storage::postgres::Transaction;
use onsale_types::{HoldId, InvitationId, QuotaId};

use super::super::App;
use crate::{
    domain::{
        hold::{Hold, HoldState, Invited},
        invitation::Invitation,
        quota::Quota,
    },
    error::Error,
    store,
};

/// Released holds, by whose their units are now.
#[derive(Debug, Default)]
pub(in crate::app) struct ReleasedHolds {
    /// Anyone's; they are still written as the holds'.
    pub(in crate::app) public: Vec<Hold>,
    /// Their quota's again.
    pub(in crate::app) kept: Vec<Hold>,
}

impl App {
    /// Gives the units of `released` holds back to their quotas where those are still open, and uses up the invitations of
    /// `committed` ones. The holds are locked.
    pub(in crate::app) async fn settle_quota_holds(
        &self,
        transaction: &Transaction,
        committed: &[Hold],
        released: Vec<Hold>,
    ) -> Result<ReleasedHolds, Error> {
        let (invited, public) = released.into_iter().partition(|hold| hold.invited.is_some());
        let mut sorted = ReleasedHolds { public, kept: Vec::new() };
        // In one order for everybody: two that end holds of the same two quotas must not wait for each other.
        for (quota_id, holds) in by_quota(committed, invited) {
            let mut quota = lock(transaction, quota_id).await?;
            for (invitation_id, hold) in holds {
                let mut invitation = lock_invitation(transaction, invitation_id, hold.id).await?;
                match hold.state {
                    HoldState::Committed => quota.forgo(invitation.use_up(unit_count(&hold))),
                    HoldState::Held | HoldState::Released => {
                        give_back(transaction, &mut quota, &mut invitation, hold, &mut sorted).await?;
                    }
                }
                store::invitations::save(transaction, &invitation).await?;
            }
            store::quotas::save(transaction, &quota).await?;
        }
        Ok(sorted)
    }
}

/// Gives the units of a released hold to its quota, if that is open.
async fn give_back(
    transaction: &Transaction,
    quota: &mut Quota,
    invitation: &mut Invitation,
    hold: Hold,
    sorted: &mut ReleasedHolds,
) -> Result<(), Error> {
    invitation.take_back(quota);
    if quota.take_back(unit_count(&hold)) {
        for item in &hold.items {
            store::quotas::take_back(transaction, quota, hold.id, &item.units).await?;
        }
        sorted.kept.push(hold);
    } else {
        sorted.public.push(hold);
    }
    Ok(())
}

/// The invited ones of the holds by their quotas.
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
    store::quotas::lock(transaction, quota_id)
        .await?
        .ok_or(Error::Stored { what: "quota of a hold", source: None })
}

async fn lock_invitation(
    transaction: &Transaction,
    invitation_id: InvitationId,
    hold_id: HoldId,
) -> Result<Invitation, Error> {
    let invitation = store::invitations::lock(transaction, invitation_id).await?;
    let invitation = invitation.filter(|invitation| invitation.hold_id == Some(hold_id));
    invitation.ok_or(Error::Stored { what: "invitation of a hold", source: None })
}

fn unit_count(hold: &Hold) -> u32 {
    let units = hold.items.iter().map(|item| item.units.len()).fold(0, usize::saturating_add);
    u32::try_from(units).unwrap_or(u32::MAX)
}
