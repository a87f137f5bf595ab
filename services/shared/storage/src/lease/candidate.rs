//! How one candidate decides: a pure state machine, without clock, store or chance of its own.
//!
//! The way to leadership has four steps: take the lease in Redis, read the epoch in Postgres, make sure that Redis still
//! says it is us, and raise the epoch *if it is still the one we read*. The third step is what makes the fourth safe for
//! others: whoever was paused on the way and lost the lease meanwhile finds the epoch raised and changes nothing, so it
//! cannot fence a rightful leader by waking up late.
//!
//! What it believes about the lease never carries correctness: that rests on the epoch, checked in every transaction.

use std::time::Duration;

/// A point on the candidate's own monotonic clock.
pub(super) type Elapsed = Duration;

/// The spans a candidate lives by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// How long Redis keeps the lease without a renewal.
    pub(super) ttl: Duration,
    /// How long before its end we stop believing in it.
    pub(super) margin: Duration,
    /// How often a leader renews.
    pub(super) renew_every: Duration,
    /// How often a follower tries, at most.
    pub(super) try_every: Duration,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Nothing before this elapsed.
    Wait { until: Elapsed },
    /// Take the lease in Redis.
    Acquire,
    /// Read the epoch in Postgres; 0 where there is none.
    ReadEpoch,
    /// Renew the lease in Redis, to be sure that it still is ours.
    Confirm,
    /// Raise the epoch in Postgres if it still is `seen`.
    TakeEpoch { seen: i64 },
    /// Renew the lease in Redis.
    Renew,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Redis: it is ours for another time to live.
    Held,
    /// Redis: it is another's, or gone. Postgres: the epoch is no longer the one we read.
    Refused {
        /// When it may be free, if known.
        free_in: Option<Duration>,
    },
    /// Postgres: the epoch.
    Epoch(i64),
    /// No answer, or none that counts. It may have happened.
    Failed,
}

/// One candidate for one lease.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Following { try_at: Elapsed },
    Acquired { held_until: Elapsed },
    Read { held_until: Elapsed, seen: i64 },
    Confirmed { held_until: Elapsed, seen: i64 },
    Leading(Tenure),
}

/// Leadership, as far as the candidate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    /// What it may write under.
    pub(super) epoch: i64,
    /// Until when the lease is ours for sure, as long as clocks run at about the same speed.
    pub(super) held_until: Elapsed,
    renew_at: Elapsed,
}

impl Candidate {
    /// A follower that tries at `try_at`.
    pub(super) fn new(timing: Timing, try_at: Elapsed) -> Self {
        Self { timing, phase: Phase::Following { try_at } }
    }

    /// What to do at `now`.
    pub(super) fn next_action(&mut self, now: Elapsed) -> LeaseAction {
        if let Phase::Leading(tenure) = self.phase
            && now >= tenure.held_until
        {
            // Renewals failed for too long. Redis may still have us; then the next try gets a new epoch at once.
            self.phase = Phase::Following { try_at: now };
        }
        match self.phase {
            Phase::Following { try_at } if now < try_at => LeaseAction::Wait { until: try_at },
            Phase::Following { .. } => LeaseAction::Acquire,
            Phase::Acquired { .. } => LeaseAction::ReadEpoch,
            Phase::Read { .. } => LeaseAction::Confirm,
            Phase::Confirmed { seen, .. } => LeaseAction::TakeEpoch { seen },
            Phase::Leading(tenure) if now < tenure.renew_at => {
                LeaseAction::Wait { until: tenure.renew_at.min(tenure.held_until) }
            }
            Phase::Leading(_) => LeaseAction::Renew,
        }
    }

    /// Takes in the answer to the step of [`Candidate::step`], asked at `begun` and answered by `now`. `jitter`, 0 to
    /// 1000, spreads the next try, so that candidates that were refused together do not come back together.
    pub(super) fn apply(&mut self, begun: Elapsed, answer: Answer, now: Elapsed, jitter: u16) {
        // Counted from before the question: Redis began to count at some elapsed after it.
        let held_until = begun.saturating_add(self.timing.ttl.saturating_sub(self.timing.margin));
        self.phase = match (self.phase, answer) {
            (Phase::Following { .. }, Answer::Held) => Phase::Acquired { held_until },
            (Phase::Acquired { held_until }, Answer::Epoch(seen)) => Phase::Read { held_until, seen },
            (Phase::Read { seen, .. }, Answer::Held) => Phase::Confirmed { held_until, seen },
            // Raised in time or not at all: a lease that ran out meanwhile may be another's already.
            (Phase::Confirmed { held_until, .. }, Answer::Epoch(epoch)) if now < held_until => {
                Phase::Leading(Tenure { epoch, held_until, renew_at: self.renew_at(begun, jitter) })
            }
            (Phase::Leading(tenure), Answer::Held) => {
                Phase::Leading(Tenure { held_until, renew_at: self.renew_at(begun, jitter), ..tenure })
            }
            // It may still be ours: ask again soon, and believe in it until its time is over.
            (Phase::Leading(tenure), Answer::Failed | Answer::Epoch(_)) => {
                let renew_at = now.saturating_add(self.pause(jitter).min(self.timing.renew_every));
                Phase::Leading(Tenure { renew_at, ..tenure })
            }
            (_, Answer::Refused { free_in: Some(free_in) }) => {
                // A little after it may be free, and no later than usual: it can be given back early.
                let pause = self.pause(jitter);
                let soon = free_in.saturating_add(pause / 10);
                Phase::Following { try_at: now.saturating_add(pause.min(soon)) }
            }
            (_, _) => Phase::Following { try_at: now.saturating_add(self.pause(jitter)) },
        };
    }

    /// A transaction found a higher epoch than ours: another leads, whatever Redis says.
    pub(super) fn fenced(&mut self, epoch: i64, now: Elapsed) {
        if matches!(self.phase, Phase::Leading(tenure) if tenure.epoch == epoch) {
            self.phase = Phase::Following { try_at: now };
        }
    }

    /// Leadership at `now`.
    pub(super) fn tenure(&self, now: Elapsed) -> Option<Tenure> {
        match self.phase {
            Phase::Leading(tenure) if now < tenure.held_until => Some(tenure),
            Phase::Leading(_)
            | Phase::Following { .. }
            | Phase::Acquired { .. }
            | Phase::Read { .. }
            | Phase::Confirmed { .. } => None,
        }
    }

    fn renew_at(&self, begun: Elapsed, jitter: u16) -> Elapsed {
        begun.saturating_add(spread(self.timing.renew_every, jitter))
    }

    fn pause(&self, jitter: u16) -> Duration {
        spread(self.timing.try_every, jitter)
    }
}

/// Half of `span`, and of the other half as much as `jitter` of 1000 says.
fn spread(span: Duration, jitter: u16) -> Duration {
    let half = span / 2;
    half.saturating_add(half.saturating_mul(u32::from(jitter.min(1_000))) / 1_000)
}
