//! The first step of those who come together: one look at what is known of them, one note of the attempts of all who may go on.

use std::collections::HashMap;

use onsale_kit::batcher::{BatchOutcome, Processor};
use onsale_storage::{idempotency, postgres::Postgres};
use onsale_types::{ClaimId, CustomerId, EventId, HoldId, RequestId, Timestamp};
use uuid::Uuid;

use crate::{
    domain::{Allowance, CooldownRule},
    error::Error,
    metrics,
    store::{
        self,
        entrance::{Known, Visitor},
        hold_attempts::{Attempt, Want},
    },
};

/// Who wants to claim something.
#[derive(Clone, Debug)]
pub struct Entering {
    /// What a hold is wanted for.
    pub want: Want,
    /// The request's own name for it.
    pub request_id: RequestId,
    /// In which event.
    pub event: EventId,
    /// Who.
    pub customer: CustomerId,
    /// How many units.
    pub unit_count: u32,
}

/// What to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// Inventory may be asked for this hold; it is written down.
    Attempt(HoldId),
    /// The request made this claim before.
    Done(ClaimId),
}

/// Lets them in.
#[derive(Debug)]
pub struct Enter {
    /// Where it is written down.
    pub postgres: Postgres,
    /// Who has to wait.
    pub cooldown: CooldownRule,
}

impl Processor<Entering> for Enter {
    type Output = Entered;
    type Error = Error;

    async fn process(&self, items: &[Entering]) -> BatchOutcome<Entered, Error> {
        match self.enter(items).await {
            Ok(answers) => BatchOutcome::Answered(answers),
            // Reading and noting may both be repeated.
            Err(error) if error.is_suspect() => BatchOutcome::Suspect(error),
            Err(error) => BatchOutcome::Failed(error),
        }
    }
}

impl Enter {
    async fn enter(&self, items: &[Entering]) -> Result<Vec<Result<Entered, Error>>, Error> {
        let visitor =
            |item: &Entering| Visitor { cause: item.want.cause, event: item.event, customer: item.customer };
        let visitors: Vec<Visitor> = items.iter().map(visitor).collect();
        let known = store::entrance::look(&self.postgres, &visitors).await?;
        let mut fingerprints: HashMap<Uuid, Uuid> = HashMap::with_capacity(items.len());
        let mut attempts: HashMap<HoldId, Attempt> = HashMap::with_capacity(items.len());
        let mut answers = Vec::with_capacity(items.len());
        for (item, known) in items.iter().zip(&known) {
            // Of two that come together with one id, the second is held against the first.
            let first = *fingerprints.entry(item.want.cause).or_insert(item.want.fingerprint);
            let answer =
                if first == item.want.fingerprint { self.decide(item, known) } else { Err(reused(item)) };
            if matches!(answer, Ok(Entered::Attempt(_))) {
                let attempt = Attempt::after(known.latest, item.want);
                attempts.insert(attempt.hold, attempt);
            }
            answers.push(answer);
        }
        if attempts.is_empty() {
            return Ok(answers);
        }
        let attempts: Vec<Attempt> = attempts.into_values().collect();
        let noted = store::hold_attempts::attempt(&self.postgres, &attempts).await?;
        let contended = |answer| match answer {
            Ok(Entered::Attempt(hold)) if !noted.contains(&hold) => {
                Err(Error::Contended { what: "the same request" })
            }
            answer => answer,
        };
        Ok(answers.into_iter().map(contended).collect())
    }

    /// Says no before anything is reserved, as far as can be seen without a lock. The claim's transaction looks again.
    fn decide(&self, item: &Entering, known: &Known) -> Result<Entered, Error> {
        if let Some(latest) = known.latest {
            if latest.fingerprint != item.want.fingerprint {
                return Err(reused(item));
            }
            if let Some(claim) = latest.claim {
                return Ok(Entered::Done(claim));
            }
        }
        if let Some(claim) = known.open_claim {
            return Err(Error::ClaimOpenExists { claim });
        }
        if let Some(allowance) = known.allowance {
            check(allowance, item.customer, item.unit_count, known.now, self.cooldown)?;
        }
        Ok(Entered::Attempt(Attempt::after(known.latest, item.want).hold))
    }
}

/// Whether the customer may claim so many units at `now`.
pub(super) fn check(
    allowance: Allowance,
    customer: CustomerId,
    unit_count: u32,
    now: Timestamp,
    cooldown: CooldownRule,
) -> Result<(), Error> {
    if let Some(retry_time) = allowance.abandonment.waits_until(now, cooldown) {
        metrics::cooled_down();
        return Err(Error::Cooldown { retry_time, wait: retry_time.saturating_since(now) });
    }
    allowance.check(unit_count).map_err(|exceeded| Error::LimitExceeded { customer, exceeded })
}

fn reused(item: &Entering) -> Error {
    idempotency::Error::RequestIdReused { id: item.request_id.as_uuid() }.into()
}
