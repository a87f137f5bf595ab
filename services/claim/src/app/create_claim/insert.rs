//! The last step of those who come together: each hold becomes its claim's, in one transaction for all of them.
//!
//! First the holds are taken, which whoever gives up an attempt takes too; then the customers' allowances, in one order; then
//! the domain decides for one after the other, and what it decided is written. One that is refused leaves its hold to be given
//! back and disturbs no other.

use std::{collections::HashMap, sync::Arc};

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::postgres::{Postgres, Transaction};
use onsale_types::{ClaimId, CustomerId, HoldId, Timestamp};

use super::precheck::check;
use crate::{
    config::ClaimsConfig,
    domain::{
        Allowance, Buyer, Claim, CooldownRule, Life, Lifetime, Origin, Reservation, Stage, Transition, total,
    },
    error::Error,
    store::{self, allowances::Key},
};

/// A claim about to be made.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its id.
    pub claim: ClaimId,
    /// Whose it will be.
    pub customer: CustomerId,
    /// Who gets the mails.
    pub buyer: Buyer,
    /// What gives the right to it.
    pub origin: Origin,
    /// When its turn ends, if it has one.
    pub turn_end: Option<Timestamp>,
    /// The hold it stands on.
    pub hold: HoldId,
    /// What Inventory set aside.
    pub reservation: Reservation,
}

/// Makes claims.
#[derive(Debug)]
pub struct Insert {
    /// Where they are kept.
    pub postgres: Postgres,
    /// How long they live.
    pub claims: ClaimsConfig,
    /// Who has to wait.
    pub cooldown: CooldownRule,
}

/// A customer of the batch: what they have of an event, and their open claim.
#[derive(Clone, Copy, Debug)]
struct Standing {
    allowance: Allowance,
    open_claim: Option<ClaimId>,
    /// As it is stored by now.
    stored: Allowance,
}

impl Processor<Prepared> for Insert {
    type Output = Claim;
    type Error = Error;

    async fn process(&self, items: &[Prepared]) -> BatchOutcome<Claim, Error> {
        let work = |tx: Transaction| async move { self.insert(&tx, items).await };
        match self.postgres.transaction("create claims", work).await {
            Ok(answers) => BatchOutcome::Answered(answers),
            // Rolled back, all of it.
            Err(error) if error.is_suspect() => BatchOutcome::Suspect(error),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl Insert {
    async fn insert(&self, tx: &Transaction, items: &[Prepared]) -> Result<Vec<Result<Claim, Error>>, Error> {
        let holds: Vec<_> = items.iter().map(|item| (item.hold, item.claim)).collect();
        let (taken, now) = store::hold_attempts::take(tx, &holds).await?;
        let lost = || Err(Error::Contended { what: "the hold" });
        let Some(now) = now else { return Ok(items.iter().map(|_| lost()).collect()) };
        let live: Vec<&Prepared> = items.iter().filter(|item| taken.contains(&item.claim)).collect();
        let mut standings = standings(tx, &live).await?;

        let mut answers = Vec::with_capacity(items.len());
        let (mut made, mut refused) = (Vec::with_capacity(live.len()), Vec::new());
        for item in items {
            if !taken.contains(&item.claim) {
                answers.push(lost());
                continue;
            }
            let standing = standings.get_mut(&item.key()).ok_or(Error::Stored { what: "allowance" })?;
            let answer = self.decide(item, standing, now);
            match &answer {
                Ok(claim) => made.push(claim.clone()),
                Err(_) => refused.push(item.hold),
            }
            answers.push(answer);
        }
        let changed = standings.into_iter().filter(|(_, it)| it.allowance != it.stored);
        let changed: Vec<_> = changed.map(|(key, it)| (key, it.allowance)).collect();
        store::allowances::save(tx, &changed).await?;
        store::claims::insert(tx, &made).await?;
        store::hold_attempts::give_up(tx, &refused).await?;
        Ok(answers)
    }

    /// The claim, if its customer may have it; then it counts.
    fn decide(&self, item: &Prepared, standing: &mut Standing, now: Timestamp) -> Result<Claim, Error> {
        if let Some(claim) = standing.open_claim {
            return Err(Error::ClaimOpenExists { claim });
        }
        let lifetime = Lifetime::begin(now, item.turn_end, self.claims.window)
            .ok_or(Error::TurnExpired { expire_time: item.turn_end.unwrap_or(now) })?;
        let claim = item.claim(lifetime)?;
        check(standing.allowance, item.customer, claim.unit_count(), now, self.cooldown)?;
        standing.allowance = standing.allowance.with(claim.unit_count());
        standing.open_claim = Some(claim.id);
        Ok(claim)
    }
}

/// Locks the allowance of each customer, making those that are not there yet.
async fn standings(tx: &Transaction, items: &[&Prepared]) -> Result<HashMap<Key, Standing>, Error> {
    let mut new: HashMap<Key, Allowance> = HashMap::with_capacity(items.len());
    for item in items {
        // Written with what is about to be taken, so that it is written once.
        let none = Allowance::of_new_customer(item.reservation.units_max);
        let units = item.reservation.unit_count();
        let opened = if none.check(units).is_ok() { none.with(units) } else { none };
        new.entry(item.key()).or_insert(opened);
    }
    let made = store::allowances::open(tx, &new).await?;
    let known: Vec<Key> = new.keys().filter(|key| !made.contains(key)).copied().collect();
    let locked = store::allowances::lock(tx, &known).await?;
    let open = store::allowances::open_claims(tx, &known).await?;
    let fresh = new.iter().filter(|(key, _)| made.contains(key)).map(|(key, stored)| {
        // Who had none has no claim either.
        let allowance = Allowance::of_new_customer(stored.units_max);
        (*key, Standing { allowance, open_claim: None, stored: *stored })
    });
    let known = locked.into_iter().map(|(key, allowance)| {
        (key, Standing { allowance, open_claim: open.get(&key).copied(), stored: allowance })
    });
    Ok(fresh.chain(known).collect())
}

impl Prepared {
    fn key(&self) -> Key {
        (self.reservation.event.id, self.customer)
    }

    fn claim(&self, lifetime: Lifetime) -> Result<Claim, Error> {
        let items = self.reservation.items.clone();
        let total = total(&items).ok().flatten().ok_or(Error::Stored { what: "price of a hold" })?;
        Ok(Claim {
            id: self.claim,
            customer: self.customer,
            event: Arc::clone(&self.reservation.event),
            buyer: self.buyer.clone(),
            items,
            total,
            origin: self.origin,
            hold: self.hold,
            life: Life::BEGIN,
            lifetime,
            history: vec![Transition { stage: Stage::Claimed, time: lifetime.create_time }],
        })
    }
}
