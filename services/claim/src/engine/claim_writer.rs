//! Saves changed claims and publishes their new stages.

use std::sync::Arc;

use onsale_storage::{messaging::Outbox, postgres::Transaction};
use onsale_types::Timestamp;
use tokio::sync::Notify;

use crate::{
    domain::{Claim, ClaimEvent, ClaimLifecycle, CooldownRule, ReleaseReason},
    error::Error,
    metrics, store,
};

/// Writer of all changes of existing claims.
#[derive(Debug)]
pub(crate) struct ClaimWriter {
    outbox: Outbox,
    cooldown: CooldownRule,
    release_hint: Arc<Notify>,
}

impl ClaimWriter {
    /// `release_hint` starts the worker that releases holds. A lost hint delays a release by one interval.
    pub(crate) fn new(outbox: Outbox, cooldown: CooldownRule, release_hint: Arc<Notify>) -> Self {
        Self { outbox, cooldown, release_hint }
    }

    /// Saves the new lifecycle of a locked claim and returns the changed claim. Writes nothing if the lifecycle is unchanged.
    pub(crate) async fn save(
        &self,
        transaction: &Transaction,
        claim: Claim,
        lifecycle: ClaimLifecycle,
        now: Timestamp,
    ) -> Result<Claim, Error> {
        if lifecycle == claim.lifecycle {
            return Ok(claim);
        }
        let claim_id = claim.id;
        let mut saved = self.save_all(transaction, vec![(claim, lifecycle)], now).await?;
        saved.pop().ok_or(Error::ClaimNotFound { claim_id })
    }

    /// Releases those locked claims that may be released, and marks their holds for release.
    pub(crate) async fn release_all(
        &self,
        transaction: &Transaction,
        locked: Vec<(Claim, Timestamp)>,
        reason: ReleaseReason,
    ) -> Result<(), Error> {
        let Some((_, now)) = locked.first() else { return Ok(()) };
        let now = *now;
        let released = locked.into_iter().filter_map(|(claim, _)| {
            let lifecycle = claim.lifecycle.release(reason).ok()?;
            (lifecycle != claim.lifecycle).then_some((claim, lifecycle))
        });
        let released: Vec<_> = released.collect();
        if !released.is_empty() {
            self.save_all(transaction, released, now).await?;
            // A round that starts before the commit finds nothing; the next one follows after `holds.release_every`.
            self.release_hint.notify_one();
        }
        Ok(())
    }

    /// Starts the outbox relay and the releaser. Call it after a commit of changes.
    pub(crate) fn after_commit(&self) {
        self.outbox.wake_relay();
        self.release_hint.notify_one();
    }

    /// Saves new lifecycles of locked claims, appends the events of new stages, and returns the changed claims.
    async fn save_all(
        &self,
        transaction: &Transaction,
        changes: Vec<(Claim, ClaimLifecycle)>,
        now: Timestamp,
    ) -> Result<Vec<Claim>, Error> {
        let saved = store::claims::save(transaction, &changes, now, self.cooldown).await?;
        let moved = changes
            .iter()
            .zip(&saved)
            .filter(|((before, _), after)| before.lifecycle.stage() != after.lifecycle.stage());
        let moved: Vec<&Claim> = moved.map(|(_, after)| after).collect();
        let events: Vec<ClaimEvent<'_>> =
            moved.iter().filter_map(|claim| ClaimEvent::of_stage(claim, now)).collect();
        self.outbox.append(transaction, &events).await?;
        for claim in moved {
            metrics::stage_entered(claim.lifecycle.stage().label());
        }
        Ok(saved)
    }
}
