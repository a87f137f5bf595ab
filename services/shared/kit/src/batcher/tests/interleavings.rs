//! Random interleavings. Callers arrive, leave and have deadlines at random times; items are good, bad or fail their whole
//! batch; the processor is slow, fails, panics, hangs or returns a wrong number of results; shutdown comes at any time. In
//! all cases every caller gets exactly its own answer or a typed error that the events justify.

use std::{collections::HashMap, sync::atomic::AtomicBool};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::task::JoinSet;

use super::*;

/// Longer than any scenario; a caller that waits this long hangs.
const TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemKind {
    Good,
    /// The processor refuses this item and answers the others.
    Bad,
    /// The processor fails every batch with this item.
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
    /// Shutdown of the task set: its start and its bound, after which tasks are aborted.
    Shutdown(Duration, Duration),
}

#[derive(Clone, Debug)]
struct Scenario {
    config: BatcherConfig,
    callers: Vec<Caller>,
    /// Behavior and duration of the processor's calls in order, repeated from the start.
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

/// Calls and effects of the processor, for `check_run`.
#[derive(Debug, Default)]
struct Record {
    calls: Vec<Call>,
    /// Number of times that each item took effect.
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
    /// Items of the failed attempt, one of which is poison.
    Poison(Vec<usize>),
    /// Number of the call that failed.
    Failed(usize),
}

struct ScriptedProcessor {
    kinds: Vec<ItemKind>,
    behaviors: Vec<(Behavior, Duration)>,
    record: Arc<Mutex<Record>>,
}

/// Ends the count of a call when it is dropped, also by a panic.
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

    /// Lets the item take effect unless it is bad.
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

/// `None`: the caller left before an answer.
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
        assert!(deadline.is_some_and(|deadline| deadline.is_past()), "a timeout before the deadline");
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
            assert_eq!(*answer, item, "an answer to another item");
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
            assert!(scenario.end.is_some(), "no shutdown was requested");
        }
        // `call` has checked that the deadline had passed.
        Err(SubmitError::Timeout) => {}
        Err(SubmitError::Lost) => {
            let is_broken = |call: &&Call| !matches!(call.behavior, Behavior::Works | Behavior::Fails);
            let broken = calls.last().is_some_and(is_broken);
            assert!(broken || result.aborted, "lost without a fault");
        }
        Err(SubmitError::Item(fault @ Fault::Failed(_))) => panic!("{fault} is no fault of an item"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_caller_gets_its_own_answer_or_a_justified_error(scenario in scenarios()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let result = runtime.block_on(run(&scenario));
        check_run(&scenario, &result);
    }
}
