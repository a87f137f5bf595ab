//! Last step of `CreateClaim`: one transaction per batch takes the holds, locks the allowances and inserts the claims.

use std::collections::HashMap;

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::postgres::{Postgres, Transaction};

use super::{App, refused};
use crate::{
    config::ClaimsConfig,
    domain::{Allowance, Claim, CooldownRule, NewClaim, Stage},
    error::Error,
    metrics,
    store::{self, allowances::Key},
};

impl App {
    /// Inserts the claim. After a refusal it tries to release the hold before it returns; if that fails, a worker
    /// releases it.
    pub(super) async fn insert(&self, new: NewClaim) -> Result<Claim, Error> {
        let hold_id = new.hold_id;
        let inserted: Result<Claim, Error> = self.inserts.submit(new).await.map_err(Error::from);
        match &inserted {
            Ok(_) => metrics::stage_entered(Stage::Claimed.label()),
            // Another call uses the hold, or has abandoned and thus released it.
            Err(Error::Contended { .. }) => {}
            Err(error) if error.is_refusal() => self.releaser.try_release(hold_id).await,
            Err(_) => {}
        }
        inserted
    }
}

/// Creates claims in batches. The domain decides one claim after the other. A refused claim does not affect the others, and its
/// hold becomes due for release.
#[derive(Debug)]
pub(crate) struct InsertProcessor {
    pub(crate) postgres: Postgres,
    pub(crate) claims: ClaimsConfig,
    pub(crate) cooldown: CooldownRule,
}

impl Processor<NewClaim> for InsertProcessor {
    type Output = Claim;
    type Error = Error;

    async fn process(&self, items: &[NewClaim]) -> BatchOutcome<Claim, Error> {
        let work = |transaction: Transaction| async move { self.insert(&transaction, items).await };
        match self.postgres.transaction("create claims", work).await {
            Ok(outcomes) => BatchOutcome::Answered(outcomes),
            // The transaction was rolled back, so the batcher may split the batch.
            Err(error) if error.is_suspect() => BatchOutcome::Suspect(error),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl InsertProcessor {
    async fn insert(
        &self,
        transaction: &Transaction,
        items: &[NewClaim],
    ) -> Result<Vec<Result<Claim, Error>>, Error> {
        let holds: Vec<_> = items.iter().map(|item| (item.hold_id, item.id)).collect();
        let (taken, now) = store::hold_attempts::take(transaction, &holds).await?;
        let lost = || Err(Error::Contended { what: "the hold" });
        let Some(now) = now else { return Ok(items.iter().map(|_| lost()).collect()) };
        let mut first: HashMap<Key, Allowance> = HashMap::with_capacity(items.len());
        for item in items.iter().filter(|item| taken.contains(&item.id)) {
            let (units_max, unit_count) = (item.reservation.units_max, item.reservation.unit_count());
            first.entry(key(item)).or_insert_with(|| Allowance::of_first_claim(units_max, unit_count));
        }
        let mut customers = store::allowances::open_or_lock(transaction, &first).await?;

        let mut outcomes = Vec::with_capacity(items.len());
        let (mut created, mut refused_holds) = (Vec::with_capacity(items.len()), Vec::new());
        for item in items {
            if !taken.contains(&item.id) {
                outcomes.push(lost());
                continue;
            }
            let customer = customers.get_mut(&key(item)).ok_or(Error::Stored { what: "allowance" })?;
            let outcome = item.create(customer, now, self.claims.window, self.cooldown);
            match &outcome {
                Ok(claim) => created.push(claim.clone()),
                Err(_) => refused_holds.push(item.hold_id),
            }
            outcomes.push(outcome.map_err(|refusal| refused(item.customer_id, refusal)));
        }
        let changed = customers.into_iter().filter_map(|(key, it)| Some((key, it.changed_allowance()?)));
        let changed: Vec<(Key, Allowance)> = changed.collect();
        store::allowances::save(transaction, &changed).await?;
        store::new_claims::insert(transaction, &created).await?;
        store::hold_attempts::release_taken(transaction, &refused_holds).await?;
        Ok(outcomes)
    }
}

fn key(item: &NewClaim) -> Key {
    (item.reservation.event.id, item.customer_id)
}
