//! Tests of the worker loop, on a paused clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_stream::wrappers::WatchStream;

use super::*;

const INTERVAL: Duration = Duration::from_secs(10);
/// One interval with its largest jitter.
const INTERVAL_MAX: Duration = Duration::from_secs(11);
const BOUND: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("the store is down")]
struct Down;

/// Start times of the rounds since the recorder's creation.
#[derive(Clone)]
struct Starts {
    begin: Instant,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Starts {
    fn new() -> Self {
        Self { begin: Instant::now(), times: Arc::default() }
    }

    fn record(&self) -> usize {
        let mut times = self.times.lock();
        times.push(self.begin.elapsed());
        times.len()
    }

    fn count(&self) -> usize {
        self.times.lock().len()
    }

    fn nth(&self, index: usize) -> Duration {
        self.times.lock()[index]
    }

    /// Records the start of a round and returns what `outcome` gives for its number, from 1.
    fn round(
        &self,
        outcome: impl Fn(usize) -> Result<Round, Down> + Send + Sync + 'static,
    ) -> impl FnMut() -> std::future::Ready<Result<Round, Down>> + Send + 'static {
        let starts = self.clone();
        move || std::future::ready(outcome(starts.record()))
    }
}

/// Lets all ready tasks run. No time passes on the paused clock.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_round_starts_immediately_and_the_next_after_the_interval() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    Worker::every("steady", INTERVAL).start(&tasks, starts.round(|_| Ok(Round::Idle)));
    settle().await;
    assert_eq!((starts.count(), starts.nth(0)), (1, Duration::ZERO));
    tokio::time::sleep(INTERVAL_MAX * 50).await;
    let gaps: Vec<_> = (1..starts.count()).map(|n| starts.nth(n) - starts.nth(n - 1)).collect();
    assert!(gaps.iter().all(|gap| (INTERVAL..=INTERVAL_MAX).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap > INTERVAL + Duration::from_millis(200)), "no jitter in {gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn more_work_starts_the_next_round_immediately() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    let outcome = |number| Ok(if number < 5 { Round::More } else { Round::Idle });
    Worker::every("backlog", INTERVAL).start(&tasks, starts.round(outcome));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((starts.count(), starts.nth(4)), (5, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn failures_add_a_backoff_and_a_success_resets_it() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    let failures = BackoffConfig {
        initial: Duration::from_secs(100),
        max: Duration::from_secs(400),
        multiplier: 2,
        attempts_max: 1,
    };
    let outcome = |number| if number == 21 { Ok(Round::Idle) } else { Err(Down) };
    Worker::every("failing", INTERVAL).backoff(failures).start(&tasks, starts.round(outcome));
    while starts.count() < 24 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let gaps: Vec<_> = (1..24).map(|n| starts.nth(n) - starts.nth(n - 1)).collect();
    assert!(gaps.iter().all(|gap| (INTERVAL..=INTERVAL_MAX + failures.max).contains(gap)), "{gaps:?}");
    assert!(gaps[..20].iter().any(|gap| *gap > INTERVAL_MAX + failures.initial * 2), "no growth in {gaps:?}");
    assert!(gaps[20] <= INTERVAL_MAX, "a success is followed by a plain interval");
    assert!(gaps[21] <= INTERVAL_MAX + failures.initial, "the backoff starts again");
}

#[tokio::test(start_paused = true)]
async fn hint_starts_a_round_early_and_a_burst_starts_one() {
    let (tasks, starts, hint) = (Tasks::new(), Starts::new(), Arc::new(Notify::new()));
    let (burst, received) = tokio::sync::mpsc::channel(100);
    let received = tokio_stream::wrappers::ReceiverStream::new(received);
    let worker = Worker::every("hinted", INTERVAL).hint_delay(Duration::from_millis(20));
    worker
        .notified_by(Arc::clone(&hint))
        .hinted_by(received)
        .start(&tasks, starts.round(|_| Ok(Round::Idle)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    hint.notify_one();
    for _ in 0..100 {
        burst.try_send(()).expect("there is room");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((starts.count(), starts.nth(1)), (2, Duration::from_millis(1_020)));
}

#[tokio::test(start_paused = true)]
async fn hint_during_a_round_is_not_lost() {
    let (tasks, starts, hint) = (Tasks::new(), Starts::new(), Arc::new(Notify::new()));
    let (recorded, notified) = (starts.clone(), Arc::clone(&hint));
    Worker::on_hints("busy").notified_by(hint).start(&tasks, move || {
        let (recorded, notified) = (recorded.clone(), Arc::clone(&notified));
        async move {
            if recorded.record() == 1 {
                notified.notify_one();
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Down>(())
        }
    });
    tokio::time::sleep(BOUND).await;
    assert_eq!((starts.count(), starts.nth(1)), (2, Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn busy_worker_leaves_a_shared_hint_to_an_idle_one() {
    let (tasks, starts, hint) = (Tasks::new(), Starts::new(), Arc::new(Notify::new()));
    let (recorded, is_first) = (starts.clone(), Arc::new(AtomicBool::new(true)));
    for _ in 0..2 {
        let (recorded, is_first) = (recorded.clone(), Arc::clone(&is_first));
        Worker::on_hints("shared").notified_by(Arc::clone(&hint)).start(&tasks, move || {
            let (recorded, is_first) = (recorded.clone(), Arc::clone(&is_first));
            async move {
                // The third round, which the first hint starts, takes long.
                if recorded.record() == 3 && is_first.swap(false, Ordering::SeqCst) {
                    tokio::time::sleep(BOUND).await;
                }
                Ok::<_, Down>(())
            }
        });
    }
    settle().await;
    for number in 3..6 {
        hint.notify_one();
        settle().await;
        assert_eq!(starts.count(), number, "the hint reaches the idle worker");
    }
}

#[tokio::test(start_paused = true)]
async fn hint_never_shortens_a_backoff() {
    let (tasks, starts, hint) = (Tasks::new(), Starts::new(), Arc::new(Notify::new()));
    let failures = BackoffConfig { initial: BOUND, max: BOUND, multiplier: 1, attempts_max: 1 };
    let worker = Worker::every("hinted", INTERVAL).backoff(failures).notified_by(Arc::clone(&hint));
    worker.start(&tasks, starts.round(|number| if number <= 20 { Err(Down) } else { Ok(Round::Idle) }));
    while starts.count() <= 20 {
        hint.notify_one();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Each wait is uniformly random from 0 to 60 s. Shortened by hints, all 20 would pass within a second.
    assert!(starts.nth(20) > BOUND * 2, "{:?}", starts.nth(20));
    assert!(starts.nth(20) < BOUND * 20, "after its backoff a hinted round does not wait for the interval");
}

#[tokio::test(start_paused = true)]
async fn running_round_finishes_at_shutdown_and_no_other_starts() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    let finished = Arc::new(AtomicUsize::new(0));
    let (recorded, counted) = (starts.clone(), Arc::clone(&finished));
    Worker::every("slow", INTERVAL).start(&tasks, move || {
        let (recorded, counted) = (recorded.clone(), Arc::clone(&counted));
        async move {
            recorded.record();
            tokio::time::sleep(Duration::from_secs(5)).await;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Down>(Round::More)
        }
    });
    settle().await;
    assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
    assert_eq!((starts.count(), finished.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_backoff_and_an_interval() {
    for outcome in [|| Err(Down), || Ok(Round::Idle)] {
        let (tasks, starts) = (Tasks::new(), Starts::new());
        let failures = BackoffConfig { initial: BOUND, max: BOUND, multiplier: 1, attempts_max: 1 };
        let worker = Worker::every("waiting", BOUND * 10).backoff(failures);
        worker.start(&tasks, starts.round(move |_| outcome()));
        settle().await;
        let begin = Instant::now();
        assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
        assert_eq!((begin.elapsed(), starts.count()), (Duration::ZERO, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_round_counts_as_a_failure_and_the_loop_continues() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    let outcome = |number| if number == 1 { panic!("a fault in a round") } else { Ok(Round::Idle) };
    Worker::every("panicking", INTERVAL).start(&tasks, starts.round(outcome));
    tokio::time::sleep(INTERVAL_MAX + FAILURES.initial).await;
    assert_eq!(starts.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn done_ends_the_loop() {
    let (tasks, starts) = (Tasks::new(), Starts::new());
    Worker::every("finite", INTERVAL).start(&tasks, starts.round(|_| Ok(Round::Done)));
    tokio::time::sleep(BOUND).await;
    assert_eq!((starts.count(), tasks.running()), (1, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn rounds_start_only_while_the_condition_is_met() {
    let (tasks, starts, leads) = (Tasks::new(), Starts::new(), Arc::new(AtomicBool::new(false)));
    let (changed, changes) = watch::channel(());
    let unmet = Arc::new(AtomicUsize::new(0));
    let (asked, counted) = (Arc::clone(&leads), Arc::clone(&unmet));
    let condition = Condition::new(move || asked.load(Ordering::SeqCst), WatchStream::from_changes(changes))
        .while_unmet(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
    Worker::every("leader", INTERVAL).only_while(condition).start(&tasks, starts.round(|_| Ok(Round::Idle)));

    tokio::time::sleep(INTERVAL_MAX * 3).await;
    assert_eq!(starts.count(), 0);
    assert!(unmet.load(Ordering::SeqCst) >= 3, "reported at once and every interval");

    let elected = starts.begin.elapsed();
    leads.store(true, Ordering::SeqCst);
    changed.send_replace(());
    settle().await;
    assert_eq!(
        (starts.count(), starts.nth(0)),
        (1, elected),
        "a round starts as soon as the condition is met"
    );

    leads.store(false, Ordering::SeqCst);
    let reports = unmet.load(Ordering::SeqCst);
    changed.send_replace(());
    settle().await;
    assert_eq!(unmet.load(Ordering::SeqCst), reports + 1, "the loss is reported at once");
    tokio::time::sleep(INTERVAL_MAX * 2).await;
    assert_eq!(starts.count(), 1);
    assert_eq!(tasks.shutdown(BOUND).await, Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn age_of_the_last_success_grows_until_a_round_succeeds() {
    let handle = crate::telemetry::metrics::handle();
    let age = || {
        let page = handle.render();
        let line =
            page.lines().find(|line| line.starts_with("worker_last_success_age_seconds{worker=\"aging\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let (tasks, starts) = (Tasks::new(), Starts::new());
    let outcome = |number| if number < 3 { Err(Down) } else { Ok(Round::Idle) };
    Worker::every("aging", INTERVAL).start(&tasks, starts.round(outcome));
    tokio::time::sleep(INTERVAL).await;
    tasks.report_worker_ages();
    assert!(age().is_some_and(|age| age >= 9.9), "{:?}", age());
    while starts.count() < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tasks.report_worker_ages();
    assert!(age().is_some_and(|age| age <= 1.0), "{:?}", age());
    let page = handle.render();
    for line in ["worker_rounds_total{worker=\"aging\"} 3", "worker_failures_total{worker=\"aging\"} 2"] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
}
