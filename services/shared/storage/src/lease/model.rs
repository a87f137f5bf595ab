//! Property test of the lease protocol against a model of both stores, with random interleavings of pauses, lost
//! answers, clock jumps and data loss of Redis, and open transactions.
//!
//! The candidates are the production code; only the stores are modeled.

use std::time::Duration;

use proptest::prelude::*;

use super::candidate::{Answer, Candidate, Elapsed, LeaseAction, Timing};

const TIMING: Timing = Timing {
    ttl: Duration::from_millis(1_000),
    margin: Duration::from_millis(100),
    renew_every: Duration::from_millis(250),
    try_every: Duration::from_millis(100),
};

/// One random step. `who` is taken modulo the number of candidates.
#[derive(Clone, Debug)]
enum Step {
    /// Time passes for all.
    Pass { millis: u64 },
    /// A candidate starts its next call, if it has one. The store acts now; the answer is in flight.
    Call { who: usize },
    /// The answer arrives. Between `Call` and this, the candidate is paused.
    Deliver { who: usize },
    /// The answer is lost; the candidate sees a failure.
    LoseAnswer { who: usize },
    /// A candidate opens a transaction and guards it with the last lease it saw, without checking the clock.
    Begin { who: usize },
    /// The open transaction writes and commits.
    Commit { who: usize },
    /// Postgres ends the open transaction.
    Abort { who: usize },
    /// Redis loses all data.
    Wipe,
    /// Redis fails over to a stale replica: the lease returns to the holder before the last.
    Revert,
    /// The clock of Redis jumps ahead: leases end early.
    JumpAhead { millis: u64 },
    /// The clock of Redis jumps back: leases end late.
    JumpBack { millis: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_u64..400).prop_map(|millis| Step::Pass { millis }),
        1 => (900_u64..2_500).prop_map(|millis| Step::Pass { millis }),
        20 => any::<usize>().prop_map(|who| Step::Call { who }),
        20 => any::<usize>().prop_map(|who| Step::Deliver { who }),
        2 => any::<usize>().prop_map(|who| Step::LoseAnswer { who }),
        8 => any::<usize>().prop_map(|who| Step::Begin { who }),
        8 => any::<usize>().prop_map(|who| Step::Commit { who }),
        1 => any::<usize>().prop_map(|who| Step::Abort { who }),
        1 => Just(Step::Wipe),
        2 => Just(Step::Revert),
        1 => (1_u64..2_000).prop_map(|millis| Step::JumpAhead { millis }),
        1 => (1_u64..2_000).prop_map(|millis| Step::JumpBack { millis }),
    ];
    prop::collection::vec(step, 1..400)
}

struct Process {
    candidate: Candidate,
    in_flight: Option<(Elapsed, Answer)>,
    /// Epoch of the last lease that the process received, which may have ended long ago.
    epoch: Option<i64>,
    /// Epoch with which the open transaction was guarded.
    open: Option<i64>,
}

struct Model {
    now: Elapsed,
    /// Holder of the lease in Redis, and its end by the clock of Redis.
    lease: Option<(usize, Elapsed)>,
    holder_before: Option<usize>,
    /// Total jumps of the clock of Redis, ahead and back.
    ahead: Duration,
    back: Duration,
    /// Epoch in the row in Postgres.
    epoch: i64,
    processes: Vec<Process>,
    /// Every epoch handed out, with its owner.
    epochs: Vec<(i64, usize)>,
    writes: Vec<(i64, usize)>,
}

impl Model {
    fn new(count: usize) -> Self {
        let process = |_| Process {
            candidate: Candidate::new(TIMING, Duration::ZERO),
            in_flight: None,
            epoch: None,
            open: None,
        };
        Self {
            now: Duration::ZERO,
            lease: None,
            holder_before: None,
            ahead: Duration::ZERO,
            back: Duration::ZERO,
            epoch: 0,
            processes: (0..count).map(process).collect(),
            epochs: Vec::new(),
            writes: Vec::new(),
        }
    }

    fn redis_now(&self) -> Elapsed {
        (self.now + self.ahead).saturating_sub(self.back)
    }

    fn holder(&self) -> Option<usize> {
        self.lease.filter(|(_, until)| self.redis_now() < *until).map(|(who, _)| who)
    }

    fn apply(&mut self, step: &Step) {
        let count = self.processes.len();
        match *step {
            Step::Pass { millis } => self.now += Duration::from_millis(millis),
            Step::Call { who } => self.call(who % count),
            Step::Deliver { who } => self.deliver(who % count),
            Step::LoseAnswer { who } => {
                if let Some((_, answer)) = &mut self.processes[who % count].in_flight {
                    *answer = Answer::Failed;
                }
            }
            Step::Begin { who } => self.begin(who % count),
            Step::Commit { who } => {
                if let Some(epoch) = self.processes[who % count].open.take() {
                    self.writes.push((epoch, who % count));
                }
            }
            Step::Abort { who } => self.processes[who % count].open = None,
            Step::Wipe => self.lease = None,
            Step::Revert => self.lease = self.holder_before.map(|who| (who, self.redis_now() + TIMING.ttl)),
            Step::JumpAhead { millis } => self.ahead += Duration::from_millis(millis),
            Step::JumpBack { millis } => self.back += Duration::from_millis(millis),
        }
    }

    fn call(&mut self, who: usize) {
        if self.processes[who].in_flight.is_some() {
            return;
        }
        let action = self.processes[who].candidate.next_action(self.now);
        let until = self.redis_now() + TIMING.ttl;
        let is_free_or_ours = self.holder().is_none_or(|holder| holder == who);
        let is_ours = self.holder() == Some(who);
        let answer = match action {
            LeaseAction::Wait { .. } => return,
            LeaseAction::Acquire if is_free_or_ours => {
                let last = self.lease.map(|(holder, _)| holder);
                self.holder_before = last.filter(|holder| *holder != who).or(self.holder_before);
                self.lease = Some((who, until));
                Answer::Held
            }
            LeaseAction::Confirm | LeaseAction::Renew if is_ours => {
                self.lease = Some((who, until));
                Answer::Held
            }
            LeaseAction::Acquire | LeaseAction::Confirm | LeaseAction::Renew => {
                Answer::Refused { free_in: None }
            }
            LeaseAction::ReadEpoch => Answer::Epoch(self.epoch),
            // The guard of an open transaction holds a share lock on the row. Returning waits: the call is made later.
            LeaseAction::TakeEpoch { .. } if self.processes.iter().any(|process| process.open.is_some()) => {
                return;
            }
            LeaseAction::TakeEpoch { expected } if expected == self.epoch => {
                self.epoch += 1;
                self.epochs.push((self.epoch, who));
                Answer::Epoch(self.epoch)
            }
            LeaseAction::TakeEpoch { .. } => Answer::Refused { free_in: None },
        };
        self.processes[who].in_flight = Some((self.now, answer));
    }

    fn deliver(&mut self, who: usize) {
        let now = self.now;
        let process = &mut self.processes[who];
        if let Some((started, answer)) = process.in_flight.take() {
            process.candidate.apply(started, answer, now, 500);
            if let Some(tenure) = process.candidate.tenure(now) {
                process.epoch = Some(tenure.epoch);
            }
        }
    }

    /// Guards a transaction: passes only with the row's epoch, and then locks the row.
    fn begin(&mut self, who: usize) {
        let now = self.now;
        let process = &mut self.processes[who];
        let Some(mine) = process.epoch.filter(|_| process.open.is_none()) else { return };
        if mine == self.epoch {
            process.open = Some(mine);
        } else {
            process.candidate.fenced(mine, now);
            process.epoch = None;
        }
    }

    fn assert_safe(&self) -> Result<(), TestCaseError> {
        for pair in self.epochs.windows(2) {
            prop_assert!(pair[0].0 < pair[1].0, "an epoch did not rise: {:?}", self.epochs);
        }
        for pair in self.writes.windows(2) {
            prop_assert!(pair[0].0 <= pair[1].0, "an old leader wrote after a new one: {:?}", self.writes);
        }
        let current = self.epoch;
        for process in &self.processes {
            if let Some(open) = process.open {
                prop_assert_eq!(open, current, "an epoch was raised under an open transaction");
            }
        }
        for write in &self.writes {
            prop_assert!(
                self.epochs.contains(write),
                "{:?} wrote under another's epoch: {:?}",
                write,
                self.epochs
            );
        }
        Ok(())
    }

    /// Runs without faults: every process asks and gets its answer in turn.
    fn run_without_faults(&mut self, span: Duration) {
        for process in &mut self.processes {
            process.open = None;
        }
        let end = self.now + span;
        while self.now < end {
            for who in 0..self.processes.len() {
                self.call(who);
                self.deliver(who);
                // A short transaction, like most.
                self.begin(who);
                self.apply(&Step::Commit { who });
            }
            self.now += Duration::from_millis(10);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn writes_are_in_the_order_of_epochs(steps in steps(), count in 1_usize..5) {
        let mut model = Model::new(count);
        for step in &steps {
            model.apply(step);
            model.assert_safe()?;
        }
    }

    #[test]
    fn one_leader_writes_again_after_any_faults(steps in steps(), count in 1_usize..5) {
        let mut model = Model::new(count);
        for step in &steps {
            model.apply(step);
        }
        // If the clock of Redis jumped back, a lease lasts longer by that span.
        let longest = TIMING.ttl * 3 + model.back;
        model.run_without_faults(longest);
        model.assert_safe()?;
        let written = model.writes.len();
        model.run_without_faults(Duration::from_millis(500));
        model.assert_safe()?;
        prop_assert!(model.writes.len() > written, "no process writes");
        let now = model.now;
        let leaders: Vec<i64> = model
            .processes
            .iter()
            .filter_map(|process| process.candidate.tenure(now))
            .map(|tenure| tenure.epoch)
            .collect();
        prop_assert_eq!(leaders, vec![model.epoch], "not one leader with the latest epoch");
    }

    #[test]
    fn candidate_that_lost_the_lease_raises_no_epoch(pause in 0_u64..3_000) {
        // Takes the lease in Redis, reads the epoch, and pauses. If there is time, another candidate takes over
        // meanwhile.
        let mut model = Model::new(2);
        for _ in 0..3 {
            model.call(0);
            model.deliver(0);
        }
        model.now += Duration::from_millis(pause);
        model.lease = model.lease.filter(|_| pause < 1_000);
        model.take_over(1);
        let taken_by_other = model.epochs.len();
        model.call(0);
        model.deliver(0);
        if taken_by_other > 0 {
            prop_assert_eq!(model.epochs.len(), taken_by_other, "the paused candidate raised the epoch");
            prop_assert!(model.processes[0].candidate.tenure(model.now).is_none());
        }
    }
}

impl Model {
    fn take_over(&mut self, who: usize) {
        for _ in 0..4 {
            self.call(who);
            self.deliver(who);
        }
    }
}

#[test]
fn held_until_is_counted_from_before_the_call() {
    let mut candidate = Candidate::new(TIMING, Duration::ZERO);
    let asked = Duration::from_millis(5);
    let answered = Duration::from_millis(600);
    assert_eq!(candidate.next_action(asked), LeaseAction::Acquire);
    candidate.apply(asked, Answer::Held, answered, 0);
    candidate.apply(answered, Answer::Epoch(0), answered, 0);
    let confirmed = Duration::from_millis(700);
    candidate.apply(confirmed, Answer::Held, confirmed, 0);
    candidate.apply(confirmed, Answer::Epoch(1), Duration::from_millis(1_500), 0);
    let end = confirmed + TIMING.ttl - TIMING.margin;
    assert_eq!(candidate.tenure(Duration::from_millis(1_500)).map(|tenure| tenure.held_until), Some(end));
    assert_eq!(candidate.tenure(end), None, "the leader steps down");
    assert_eq!(candidate.next_action(end), LeaseAction::Acquire, "the candidate tries again");
}

#[test]
fn follower_tries_when_the_lease_may_be_free() {
    let now = Duration::from_secs(1);
    for (free_in, latest) in [(Some(20), 31), (Some(60_000), 101), (None, 101)] {
        let mut candidate = Candidate::new(TIMING, now);
        assert_eq!(candidate.next_action(now), LeaseAction::Acquire);
        let free_in = free_in.map(Duration::from_millis);
        candidate.apply(now, Answer::Refused { free_in }, now, 1_000);
        let LeaseAction::Wait { until } = candidate.next_action(now) else {
            panic!("the follower does not wait")
        };
        assert!(until > now && until - now <= Duration::from_millis(latest), "{until:?}");
    }
}

#[test]
fn leader_without_replies_steps_down_before_its_lease_ends() {
    let mut candidate = Candidate::new(TIMING, Duration::ZERO);
    for answer in [Answer::Held, Answer::Epoch(0), Answer::Held, Answer::Epoch(1)] {
        let _step = candidate.next_action(Duration::ZERO);
        candidate.apply(Duration::ZERO, answer, Duration::ZERO, 500);
    }
    let mut renewals = 0;
    for millis in 1..=1_000 {
        let now = Duration::from_millis(millis);
        if candidate.tenure(now).is_none() {
            assert!(now >= TIMING.ttl - TIMING.margin);
            break;
        }
        if candidate.next_action(now) == LeaseAction::Renew {
            renewals += 1;
            candidate.apply(now, Answer::Failed, now, 500);
        }
    }
    assert!(renewals >= 3, "{renewals} renewals");
    assert_eq!(candidate.tenure(TIMING.ttl), None);
}

#[test]
fn leader_restored_by_redis_gets_a_new_epoch() {
    let mut model = Model::new(2);
    model.take_over(0);
    // Redis loses the lease of the first candidate, the second leads, and a failover restores the first one's lease.
    model.lease = None;
    model.take_over(1);
    assert_eq!(model.epochs, [(1, 0), (2, 1)]);
    model.lease = Some((0, model.redis_now() + TIMING.ttl));
    model.run_without_faults(TIMING.ttl * 2);
    let now = model.now;
    let leading = model.processes[0].candidate.tenure(now).map(|tenure| tenure.epoch);
    assert_eq!((leading, model.epoch), (Some(3), 3));
    assert_eq!(model.writes.last(), Some(&(3, 0)));
}
