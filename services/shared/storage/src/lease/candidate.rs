//! State machine of one candidate. It has no clock, no stores and no randomness of its own.
//!
//! A candidate becomes the leader in four steps: it takes the lease in Redis, reads the epoch in Postgres, confirms
//! that it still holds the lease in Redis, and raises the epoch *if it is still the one it read*. The third step
//! protects other leaders: a candidate that was paused and lost the lease meanwhile fails to confirm or finds the epoch
//! raised, so it cannot fence the rightful leader.
//!
//! Safety never depends on what a candidate believes about its lease, only on the epoch, which every transaction
//! checks.

use std::time::Duration;

/// Time on the candidate's own monotonic clock, counted from the start of the election.
pub(super) type Elapsed = Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Lifetime of the lease in Redis without renewal.
    pub(super) ttl: Duration,
    /// Time before the end of the lease at which a leader steps down.
    pub(super) margin: Duration,
    /// Interval between renewals by the leader.
    pub(super) renew_every: Duration,
    /// Longest wait of a follower between two attempts.
    pub(super) try_every: Duration,
}

/// The next call of a candidate, or a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseAction {
    /// Do nothing before this time.
    Wait {
        until: Elapsed,
    },
    /// Take the lease in Redis if it is free.
    Acquire,
    /// Read the epoch in Postgres; 0 if the row does not exist.
    ReadEpoch,
    /// Renew the lease in Redis to confirm that this candidate still holds it.
    Confirm,
    /// Raise the epoch in Postgres if it still is `expected`.
    TakeEpoch {
        expected: i64,
    },
    Renew,
}

/// Result of one [`LeaseAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Redis: this candidate holds the lease for another `ttl`.
    Held,
    /// Redis: another candidate holds the lease, or it does not exist. Postgres: the epoch is no longer the one that
    /// was read.
    Refused {
        /// Time until the lease runs out; `None` if unknown.
        free_in: Option<Duration>,
    },
    /// Postgres: the current epoch, or the raised one.
    Epoch(i64),
    /// The call failed or timed out. It may have taken effect.
    Failed,
}

#[derive(Clone, Debug)]
pub(super) struct Candidate {
    timing: Timing,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Following { try_at: Elapsed },
    Acquired { held_until: Elapsed },
    Read { held_until: Elapsed, expected: i64 },
    Confirmed { held_until: Elapsed, expected: i64 },
    Leading(Tenure),
}

/// Leadership, as far as the candidate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tenure {
    /// Epoch under which the leader writes.
    pub(super) epoch: i64,
    /// End of the lease minus the margin, if clocks run at about the same speed.
    pub(super) held_until: Elapsed,
    renew_at: Elapsed,
}

impl Candidate {
    /// Creates a follower whose first attempt is at `try_at`.
    pub(super) fn new(timing: Timing, try_at: Elapsed) -> Self {
        Self { timing, phase: Phase::Following { try_at } }
    }

    /// Returns the action to take at `now`.
    pub(super) fn next_action(&mut self, now: Elapsed) -> LeaseAction {
        if let Phase::Leading(tenure) = self.phase
            && now >= tenure.held_until
        {
            // Renewals failed until the lease ended. If Redis still names this candidate, the next attempt succeeds and
            // raises the epoch.
            self.phase = Phase::Following { try_at: now };
        }
        match self.phase {
            Phase::Following { try_at } if now < try_at => LeaseAction::Wait { until: try_at },
            Phase::Following { .. } => LeaseAction::Acquire,
            Phase::Acquired { .. } => LeaseAction::ReadEpoch,
            Phase::Read { .. } => LeaseAction::Confirm,
            Phase::Confirmed { expected, .. } => LeaseAction::TakeEpoch { expected },
            Phase::Leading(tenure) if now < tenure.renew_at => {
                LeaseAction::Wait { until: tenure.renew_at.min(tenure.held_until) }
            }
            Phase::Leading(_) => LeaseAction::Renew,
        }
    }

    /// Applies the answer to the action of [`Candidate::next_action`], sent at `started` and answered at `now`. `jitter`,
    /// 0 to 1000, spreads the next attempt, so that candidates that were refused together do not retry together.
    pub(super) fn apply(&mut self, started: Elapsed, answer: Answer, now: Elapsed, jitter: u16) {
        // Counted from before the call, because Redis starts to count at an unknown time after it.
        let held_until = started.saturating_add(self.timing.ttl.saturating_sub(self.timing.margin));
        self.phase = match (self.phase, answer) {
            (Phase::Following { .. }, Answer::Held) => Phase::Acquired { held_until },
            (Phase::Acquired { held_until }, Answer::Epoch(expected)) => Phase::Read { held_until, expected },
            (Phase::Read { expected, .. }, Answer::Held) => Phase::Confirmed { held_until, expected },
            // Only while the lease lasts: if it ran out meanwhile, another candidate may hold it.
            (Phase::Confirmed { held_until, .. }, Answer::Epoch(epoch)) if now < held_until => {
                Phase::Leading(Tenure { epoch, held_until, renew_at: self.renew_at(started, jitter) })
            }
            (Phase::Leading(tenure), Answer::Held) => {
                Phase::Leading(Tenure { held_until, renew_at: self.renew_at(started, jitter), ..tenure })
            }
            // Redis may still have renewed the lease: retry, and keep leading until `held_until`.
            (Phase::Leading(tenure), Answer::Failed | Answer::Epoch(_)) => {
                let renew_at = now.saturating_add(self.pause(jitter).min(self.timing.renew_every));
                Phase::Leading(Tenure { renew_at, ..tenure })
            }
            (_, Answer::Refused { free_in: Some(free_in) }) => {
                // Try shortly after the lease can run out, but no later than usual, because the holder may release it
                // early.
                let pause = self.pause(jitter);
                let soon = free_in.saturating_add(pause / 10);
                Phase::Following { try_at: now.saturating_add(pause.min(soon)) }
            }
            (_, _) => Phase::Following { try_at: now.saturating_add(self.pause(jitter)) },
        };
    }

    /// Steps down because a transaction found an epoch higher than `epoch`, whatever Redis says.
    pub(super) fn fenced(&mut self, epoch: i64, now: Elapsed) {
        if matches!(self.phase, Phase::Leading(tenure) if tenure.epoch == epoch) {
            self.phase = Phase::Following { try_at: now };
        }
    }

    /// Returns the tenure at `now`, or `None` if this candidate does not lead.
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

    fn renew_at(&self, started: Elapsed, jitter: u16) -> Elapsed {
        started.saturating_add(spread(self.timing.renew_every, jitter))
    }

    fn pause(&self, jitter: u16) -> Duration {
        spread(self.timing.try_every, jitter)
    }
}

/// Returns between half and all of `span`, in proportion to `jitter` of 1000.
fn spread(span: Duration, jitter: u16) -> Duration {
    let half = span / 2;
    half.saturating_add(half.saturating_mul(u32::from(jitter.min(1_000))) / 1_000)
}
