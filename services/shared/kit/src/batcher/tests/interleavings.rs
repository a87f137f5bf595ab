//! Random interleavings: callers come at any time, leave at any time and have deadlines; items are good, bad or poison
//! their whole batch; the processor is slow, fails, panics, miscounts or hangs; shutdown comes at any time. Whatever
//! happens, every caller gets exactly its own answer or a typed error that is justified by what happened.

use std::{collections::HashMap, sync::atomic::AtomicBool};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;

/// More than any scenario can take; who waits longer hangs.
const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Good,
    /// The processor refuses it and answers its neighbours.
    Bad,
    /// The processor cannot process a batch that has it.
    Poison,
}

#[derive(Clone, Debug)]
struct Caller {
    arrives: Duration,
    leaves_after: Option<Duration>,
    deadline: Option<Duration>,
    kind: ItemKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    Works,
    Fails,
    PanicsAtOnce,
    PanicsAfterWork,
    AnswersTooFew,
    AnswersTooMany,
    Hangs,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Close(Duration),
    /// Shuts the task set down at the first, with the second as bound: what takes longer is aborted.
    Shutdown(Duration, Duration),
}

#[derive(Clone, Debug)]
struct Scenario {
    config: BatcherConfig,
    callers: Vec<Caller>,
    /// How the processor is at its first call, its second, and so on; then from the beginning.
    behaviors: Vec<(Behavior, Duration)>,
    end: Option<Ending>,
}

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn callers() -> impl Strategy<Value = Caller> {
    let kind = prop_oneof![6 => Just(ItemKind::Good), 1 => Just(ItemKind::Bad), 1 => Just(ItemKind::Poison)];
    let leaves = prop::option::weighted(0.2, millis(0..60));
    let deadline = prop::option::weighted(0.3, millis(0..80));
    (millis(0..100), leaves, deadline, kind).prop_map(|(arrives, leaves_after, deadline, kind)| Caller {
        arrives,
        leaves_after,
        deadline,
        kind,
    })
}

fn behaviors() -> impl Strategy<Value = (Behavior, Duration)> {
    let behavior = prop_oneof![
        12 => Just(Behavior::Works),
        1 => Just(Behavior::Fails),
        1 => Just(Behavior::PanicsAtOnce),
        1 => Just(Behavior::PanicsAfterWork),
        1 => Just(Behavior::AnswersTooFew),
        1 => Just(Behavior::AnswersTooMany),
        1 => Just(Behavior::Hangs),
    ];
    (behavior, millis(0..30))
}

fn scenarios() -> impl Strategy<Value = Scenario> {
    let config = (1_usize..20, 1_usize..9, millis(0..20), 1_usize..4, millis(0..100)).prop_map(
        |(queue_max, batch_max, linger_max, concurrency, flush_max)| BatcherConfig {
            queue_max,
            batch_max,
            linger_max,
            concurrency,
            process_max: Duration::from_millis(50),
            flush_max,
        },
    );
    let end = prop_oneof![
        2 => Just(None),
        1 => millis(0..150).prop_map(|at| Some(Ending::Close(at))),
        1 => (millis(0..150), millis(0..60)).prop_map(|(at, bound)| Some(Ending::Shutdown(at, bound))),
    ];
    let callers = prop::collection::vec(callers(), 1..60);
    let behaviors = prop::collection::vec(behaviors(), 1..8);
    (config, callers, behaviors, end).prop_map(|(config, callers, behaviors, end)| Scenario {
        config,
        callers,
        behaviors,
        end,
    })
}

/// What the processor did, for the judge.
#[derive(Debug, Default)]
struct Record {
    calls: Vec<Call>,
    /// How often each item took effect.
    effects: HashMap<usize, u32>,
    in_work: usize,
    in_work_max: usize,
}

#[derive(Debug)]
struct Call {
    items: Vec<usize>,
    behavior: Behavior,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{self:?}")]
enum Fault {
    Bad(usize),
    /// The batch had poison in it; with the items of that very attempt.
    Poison(Vec<usize>),
    /// The call with this number failed.
    Failed(usize),
}

struct ScriptedProcessor {
    kinds: Vec<ItemKind>,
    behaviors: Vec<(Behavior, Duration)>,
    record: Arc<Mutex<Record>>,
}

/// Counts a call as over even when it is dropped or panics.
struct InWork(Arc<Mutex<Record>>);

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.lock().in_work -= 1;
    }
}

impl ScriptedProcessor {
    fn begin(&self, items: &[usize]) -> (usize, Behavior, Duration, InWork) {
        let mut record = self.record.lock();
        let number = record.calls.len();
        let (behavior, work) = self.behaviors[number % self.behaviors.len()];
        record.calls.push(Call { items: items.to_vec(), behavior });
        record.in_work += 1;
        record.in_work_max = record.in_work_max.max(record.in_work);
        (number, behavior, work, InWork(Arc::clone(&self.record)))
    }

    /// The item takes effect, unless it is bad.
    fn work_on(&self, item: usize) -> Result<usize, Fault> {
        if self.kinds[item] == ItemKind::Bad {
            return Err(Fault::Bad(item));
        }
        *self.record.lock().effects.entry(item).or_default() += 1;
        Ok(item)
    }
}

impl Processor<usize> for ScriptedProcessor {
    type Output = usize;
    type Error = Fault;

    async fn process(&self, items: &[usize]) -> BatchOutcome<usize, Fault> {
        let (number, behavior, work, _in_work) = self.begin(items);
        assert!(behavior != Behavior::PanicsAtOnce, "the processor panics at once");
        if !work.is_zero() {
            tokio::time::sleep(work).await;
        }
        if items.iter().any(|item| self.kinds[*item] == ItemKind::Poison) {
            return BatchOutcome::Suspect(Fault::Poison(items.to_vec()));
        }
        match behavior {
            Behavior::Works => BatchOutcome::Answered(items.iter().map(|item| self.work_on(*item)).collect()),
            Behavior::Fails => BatchOutcome::Failed(Fault::Failed(number)),
            Behavior::AnswersTooFew => {
                BatchOutcome::Answered(items.iter().skip(1).map(|item| self.work_on(*item)).collect())
            }
            Behavior::AnswersTooMany => {
                let answers = items.iter().map(|item| self.work_on(*item));
                BatchOutcome::Answered(answers.chain([Ok(0)]).collect())
            }
            Behavior::PanicsAtOnce | Behavior::PanicsAfterWork => {
                panic!("the processor panics after its work")
            }
            Behavior::Hangs => std::future::pending().await,
        }
    }
}

/// `None`: the caller left.
type Outcome = Option<Result<usize, SubmitError<Fault>>>;

struct RunResult {
    outcomes: Vec<Outcome>,
    record: Record,
    aborted: bool,
}

async fn run(scenario: &Scenario) -> RunResult {
    let tasks = Tasks::new();
    let record = Arc::new(Mutex::new(Record::default()));
    let processor = ScriptedProcessor {
        kinds: scenario.callers.iter().map(|caller| caller.kind).collect(),
        behaviors: scenario.behaviors.clone(),
        record: Arc::clone(&record),
    };
    let batcher = Batcher::new("interleavings", scenario.config, processor, &tasks);
    let mut running = JoinSet::new();
    for (item, caller) in scenario.callers.iter().cloned().enumerate() {
        let batcher = batcher.clone();
        running.spawn(async move { (item, call(&batcher, item, caller).await) });
    }
    let aborted = Arc::new(AtomicBool::new(false));
    if let Some(end) = scenario.end {
        let (batcher, tasks, aborted) = (batcher.clone(), tasks.clone(), Arc::clone(&aborted));
        running.spawn(async move {
            match end {
                Ending::Close(at) => {
                    tokio::time::sleep(at).await;
                    batcher.close();
                }
                Ending::Shutdown(at, bound) => {
                    tokio::time::sleep(at).await;
                    aborted.store(!tasks.shutdown(bound).await.is_empty(), Ordering::SeqCst);
                }
            }
            (usize::MAX, None)
        });
    }
    let mut outcomes: Vec<Outcome> = scenario.callers.iter().map(|_| None).collect();
    while let Some(ended) = running.join_next().await {
        let (item, outcome) = ended.unwrap();
        if let Some(slot) = outcomes.get_mut(item) {
            *slot = outcome;
        }
    }
    drop(batcher);
    assert!(tasks.shutdown(TIMEOUT).await.is_empty(), "the workers end");
    let record = std::mem::take(&mut *record.lock());
    RunResult { outcomes, record, aborted: aborted.load(Ordering::SeqCst) }
}

async fn call(batcher: &Batcher<usize, usize, Fault>, item: usize, caller: Caller) -> Outcome {
    tokio::time::sleep(caller.arrives).await;
    let deadline = caller.deadline.map(Deadline::after);
    let submitted = async {
        match deadline {
            Some(deadline) => deadline.scope(batcher.submit(item)).await,
            None => batcher.submit(item).await,
        }
    };
    let outcome = match caller.leaves_after {
        Some(span) => tokio::time::timeout(span, submitted).await.ok(),
        None => Some(tokio::time::timeout(TIMEOUT, submitted).await.expect("no caller ever hangs")),
    };
    if matches!(outcome, Some(Err(SubmitError::Timeout))) {
        assert!(deadline.is_some_and(|deadline| deadline.is_past()), "a timeout before its time");
    }
    outcome
}

fn check_run(scenario: &Scenario, result: &RunResult) {
    let record = &result.record;
    assert!(record.in_work_max <= scenario.config.concurrency, "too many batches at once");
    for call in &record.calls {
        assert!(!call.items.is_empty() && call.items.len() <= scenario.config.batch_max, "batch size");
        let arrivals: Vec<_> = call.items.iter().map(|item| scenario.callers[*item].arrives).collect();
        assert!(arrivals.is_sorted(), "a batch is in order of arrival");
    }
    assert!(record.effects.values().all(|times| *times == 1), "an item took effect twice");
    for (item, outcome) in result.outcomes.iter().enumerate() {
        if let Some(outcome) = outcome {
            check_outcome(scenario, result, item, outcome);
        }
    }
}

fn check_outcome(
    scenario: &Scenario,
    result: &RunResult,
    item: usize,
    outcome: &Result<usize, SubmitError<Fault>>,
) {
    let record = &result.record;
    let kind = scenario.callers[item].kind;
    let calls: Vec<&Call> = record.calls.iter().filter(|call| call.items.contains(&item)).collect();
    let took_effect = record.effects.contains_key(&item);
    match outcome {
        Ok(answer) => {
            assert_eq!(*answer, item, "another's answer");
            assert!(took_effect, "an answer without effect");
        }
        Err(SubmitError::Item(Fault::Bad(bad))) => assert_eq!((*bad, kind), (item, ItemKind::Bad)),
        Err(SubmitError::Item(Fault::Poison(alone))) => {
            assert_eq!((alone.as_slice(), kind), ([item].as_slice(), ItemKind::Poison));
        }
        Err(SubmitError::Batch(fault)) => {
            let Fault::Failed(number) = **fault else { panic!("{fault} is no failure of a batch") };
            assert!(record.calls[number].items.contains(&item), "another batch's failure");
            assert!(!took_effect);
        }
        Err(SubmitError::Overloaded) => assert!(calls.is_empty(), "refused and processed"),
        Err(SubmitError::ShuttingDown) => {
            assert!(calls.is_empty(), "refused and processed");
            assert!(scenario.end.is_some(), "nobody asked for a shutdown");
        }
        // `call` has checked the time.
        Err(SubmitError::Timeout) => {}
        Err(SubmitError::Lost) => {
            let is_broken = |call: &&Call| !matches!(call.behavior, Behavior::Works | Behavior::Fails);
            let broken = calls.last().is_some_and(is_broken);
            assert!(broken || result.aborted, "lost without a reason");
        }
        Err(SubmitError::Item(fault @ Fault::Failed(_))) => panic!("{fault} is no fault of an item"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_caller_gets_exactly_its_own_answer_or_a_justified_error(scenario in scenarios()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let result = runtime.block_on(run(&scenario));
        check_run(&scenario, &result);
    }
}
