//! One test per rule.

use super::*;

#[tokio::test(start_paused = true)]
async fn single_item_without_linger_does_not_wait() {
    let batcher = Batcher::new("test", config(), TimesTen::default(), &Tasks::new());
    let begin = Instant::now();
    assert_eq!(batcher.submit(4).await.unwrap(), 40);
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn items_that_arrive_during_a_batch_share_the_next() {
    let processor = TimesTen::taking(SECOND);
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    let first = submit(&batcher, 100);
    settle().await;
    let rest = submit_many(&batcher, 5);
    assert_eq!(first.await.unwrap().unwrap(), 1_000);
    let rest: Vec<_> = answers(rest).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(rest, [10, 20, 30, 40, 50]);
    assert_eq!(processor.batches(), [vec![100], vec![1, 2, 3, 4, 5]]);
}

#[tokio::test(start_paused = true)]
async fn linger_counts_from_the_first_item_of_a_batch() {
    let processor = TimesTen::default();
    let config = BatcherConfig { linger_max: SECOND, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &Tasks::new());
    let begin = Instant::now();
    let first = submit(&batcher, 1);
    tokio::time::sleep(SECOND / 2).await;
    let second = submit(&batcher, 2);
    assert_eq!(first.await.unwrap().unwrap(), 10);
    assert_eq!(second.await.unwrap().unwrap(), 20);
    assert_eq!(begin.elapsed(), SECOND);
    assert_eq!(processor.batches(), [[1, 2]]);
}

#[tokio::test(start_paused = true)]
async fn full_batch_does_not_linger() {
    let processor = TimesTen::default();
    let config = BatcherConfig { linger_max: SECOND, batch_max: 3, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &Tasks::new());
    let begin = Instant::now();
    answers(submit_many(&batcher, 3)).await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert_eq!(processor.batches(), [[1, 2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn at_most_concurrency_batches_run_at_the_same_time() {
    let processor = TimesTen::taking(SECOND);
    let config = BatcherConfig { batch_max: 2, concurrency: 3, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &Tasks::new());
    let begin = Instant::now();
    answers(submit_many(&batcher, 12)).await;
    assert_eq!(processor.in_work_max.load(Ordering::SeqCst), 3);
    assert_eq!(begin.elapsed(), 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn full_queue_refuses_immediately() {
    let processor = TimesTen::taking(SECOND);
    let config = BatcherConfig { queue_max: 2, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &Tasks::new());
    let in_work = submit(&batcher, 1);
    settle().await;
    let queued = [submit(&batcher, 2), submit(&batcher, 3)];
    settle().await;
    let begin = Instant::now();
    assert!(matches!(batcher.submit(4).await, Err(SubmitError::Overloaded)));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    in_work.await.unwrap().unwrap();
    for caller in queued {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(processor.batches(), [vec![1], vec![2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn queued_item_of_a_gone_caller_is_not_processed() {
    let processor = TimesTen::taking(SECOND);
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    let in_work = submit(&batcher, 1);
    settle().await;
    let (leaving, staying) = (submit(&batcher, 2), submit(&batcher, 3));
    settle().await;
    leaving.abort();
    assert_eq!(in_work.await.unwrap().unwrap(), 10);
    assert_eq!(staying.await.unwrap().unwrap(), 30);
    assert_eq!(processor.batches(), [[1], [3]]);
}

#[tokio::test(start_paused = true)]
async fn started_item_is_finished_when_its_caller_leaves() {
    let processor = TimesTen::taking(SECOND);
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    let caller = submit(&batcher, 1);
    settle().await;
    caller.abort();
    assert_eq!(batcher.submit(2).await.unwrap(), 20);
    assert_eq!(processor.in_work.load(Ordering::SeqCst), 0);
    assert_eq!(processor.batches(), [[1], [2]]);
}

#[tokio::test(start_paused = true)]
async fn item_whose_deadline_passes_in_the_queue_is_not_processed() {
    let processor = TimesTen::taking(SECOND);
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    let in_work = submit(&batcher, 1);
    settle().await;
    let begin = Instant::now();
    let late = submit_by(&batcher, 2, Deadline::after(SECOND / 2));
    assert!(matches!(late.await.unwrap(), Err(SubmitError::Timeout)));
    assert_eq!(begin.elapsed(), SECOND / 2);
    in_work.await.unwrap().unwrap();
    batcher.submit(3).await.unwrap();
    assert_eq!(processor.batches(), [[1], [3]]);
}

#[tokio::test(start_paused = true)]
async fn item_with_a_past_deadline_is_not_queued() {
    let processor = TimesTen::default();
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    let answer = Deadline::after(Duration::ZERO).scope(batcher.submit(1)).await;
    assert!(matches!(answer, Err(SubmitError::Timeout)));
    assert!(processor.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn processor_runs_under_the_latest_deadline_of_its_callers() {
    let processor = TimesTen::default();
    let config = BatcherConfig { process_max: 10 * SECOND, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &Tasks::new());
    let (near, far) = (Deadline::after(SECOND), Deadline::after(2 * SECOND));
    answers(vec![submit_by(&batcher, 1, near), submit_by(&batcher, 2, far)]).await;
    answers(vec![submit_by(&batcher, 3, near), submit(&batcher, 4)]).await;
    assert_eq!(processor.batches(), [[1, 2], [3, 4]]);
    let longest = Deadline::after(10 * SECOND);
    assert_eq!(*processor.deadlines.lock().unwrap(), [Some(far), Some(longest)]);
}

#[tokio::test(start_paused = true)]
async fn each_caller_gets_the_answer_to_its_own_item() {
    let processor = Scripted(|items: &[u32]| {
        let answer = |item: &u32| if item.is_multiple_of(2) { Ok(*item) } else { Err(Refused("odd")) };
        BatchOutcome::Answered(items.iter().map(answer).collect())
    });
    let batcher = Batcher::new("test", config(), processor, &Tasks::new());
    for (index, answer) in answers(submit_many(&batcher, 9)).await.into_iter().enumerate() {
        match u32::try_from(index).unwrap() + 1 {
            even if even.is_multiple_of(2) => assert_eq!(answer.unwrap(), even),
            _odd => assert!(matches!(answer, Err(SubmitError::Item(Refused("odd"))))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bad_item_does_not_fail_the_others() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&attempts);
    let processor = Scripted(move |items: &[u32]| {
        seen.fetch_add(1, Ordering::SeqCst);
        if items.contains(&13) {
            return BatchOutcome::Suspect(Refused("a row is bad"));
        }
        BatchOutcome::Answered(items.iter().map(|item| Ok(*item)).collect())
    });
    let batcher = Batcher::new("test", config(), processor, &Tasks::new());
    for (index, answer) in answers(submit_many(&batcher, 64)).await.into_iter().enumerate() {
        match u32::try_from(index).unwrap() + 1 {
            13 => assert!(matches!(answer, Err(SubmitError::Item(Refused("a row is bad"))))),
            good => assert_eq!(answer.unwrap(), good),
        }
    }
    // Halving 64 items to one bad item: the whole batch, then two attempts at each of six levels.
    assert_eq!(attempts.load(Ordering::SeqCst), 13);
}

#[tokio::test(start_paused = true)]
async fn failed_batch_fails_all_its_callers_and_no_others() {
    let processor = Scripted(|items: &[u32]| {
        if items.contains(&1) {
            return BatchOutcome::Failed(Refused("store down"));
        }
        BatchOutcome::Answered(items.iter().map(|item| Ok(*item)).collect())
    });
    let batcher = Batcher::new("test", config(), processor, &Tasks::new());
    for answer in answers(submit_many(&batcher, 3)).await {
        assert!(matches!(answer, Err(SubmitError::Batch(error)) if *error == Refused("store down")));
    }
    assert_eq!(batcher.submit(2).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn panic_loses_one_batch_and_the_batcher_continues() {
    let processor = Scripted(|items: &[u32]| {
        assert!(!items.contains(&1), "a fault in the processor");
        BatchOutcome::Answered(items.iter().map(|item| Ok(*item)).collect())
    });
    let batcher = Batcher::new("test", config(), processor, &Tasks::new());
    for answer in answers(submit_many(&batcher, 3)).await {
        assert!(matches!(answer, Err(SubmitError::Lost)));
    }
    assert_eq!(batcher.submit(2).await.unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn wrong_number_of_answers_reaches_no_caller() {
    for surplus in [0, 1, 4] {
        let processor =
            Scripted(move |_items: &[u32]| BatchOutcome::Answered((0..surplus).map(Ok).collect()));
        let batcher = Batcher::new("test", config(), processor, &Tasks::new());
        for answer in answers(submit_many(&batcher, 3)).await {
            assert!(matches!(answer, Err(SubmitError::Lost)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_processor_is_cut_off() {
    let processor = TimesTen::taking(1_000 * SECOND);
    let batcher = Batcher::new("test", config(), processor, &Tasks::new());
    let begin = Instant::now();
    assert!(matches!(batcher.submit(1).await, Err(SubmitError::Lost)));
    assert_eq!(begin.elapsed(), config().process_max);
}

#[tokio::test(start_paused = true)]
async fn shutdown_flushes_the_queue_and_refuses_later_items() {
    let processor = TimesTen::taking(SECOND);
    let tasks = Tasks::new();
    let config = BatcherConfig { linger_max: 60 * SECOND, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &tasks);
    let queued = submit_many(&batcher, 3);
    settle().await;
    let begin = Instant::now();
    assert!(tasks.shutdown(10 * SECOND).await.is_empty());
    assert_eq!(begin.elapsed(), SECOND, "a shutdown does not linger");
    let flushed: Vec<_> = answers(queued).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(flushed, [10, 20, 30]);
    assert!(matches!(batcher.submit(4).await, Err(SubmitError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn items_left_at_the_end_of_the_flush_are_refused() {
    let processor = TimesTen::taking(SECOND);
    let tasks = Tasks::new();
    let config = BatcherConfig { batch_max: 1, flush_max: SECOND * 3 / 2, ..config() };
    let batcher = Batcher::new("test", config, processor.clone(), &tasks);
    let queued = submit_many(&batcher, 5);
    settle().await;
    batcher.close();
    let answers = answers(queued).await;
    // The first is running; the second and third start before the flush ends.
    assert_eq!(processor.batches(), [[1], [2], [3]]);
    assert!(answers.iter().take(3).all(Result::is_ok));
    assert!(answers.iter().skip(3).all(|answer| matches!(answer, Err(SubmitError::ShuttingDown))));
}

#[tokio::test(start_paused = true)]
async fn aborted_batcher_answers_every_caller() {
    let tasks = Tasks::new();
    let config = BatcherConfig { batch_max: 1, ..config() };
    let batcher = Batcher::new("test", config, TimesTen::taking(9 * SECOND), &tasks);
    let callers = submit_many(&batcher, 3);
    settle().await;
    assert_eq!(tasks.shutdown(SECOND).await, ["batcher"]);
    let answers = answers(callers).await;
    assert!(matches!(answers[0], Err(SubmitError::Lost)), "it may have taken effect");
    assert!(matches!(answers[1], Err(SubmitError::ShuttingDown)));
    assert!(matches!(answers[2], Err(SubmitError::ShuttingDown)));
}

#[tokio::test(start_paused = true)]
async fn batcher_ends_with_its_last_clone() {
    let tasks = Tasks::new();
    let batcher = Batcher::new("test", config(), TimesTen::default(), &tasks);
    let clone = batcher.clone();
    drop(batcher);
    assert_eq!(clone.submit(1).await.unwrap(), 10);
    drop(clone);
    settle().await;
    assert!(tasks.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn zero_in_the_settings_counts_as_one() {
    let config = BatcherConfig { queue_max: 0, batch_max: 0, concurrency: 0, ..config() };
    let batcher = Batcher::new("test", config, TimesTen::default(), &Tasks::new());
    assert_eq!(batcher.submit(1).await.unwrap(), 10);
}

#[tokio::test]
async fn submission_dropped_before_its_first_poll_queues_nothing() {
    let processor = TimesTen::default();
    let batcher = Batcher::new("test", config(), processor.clone(), &Tasks::new());
    drop(batcher.submit(1));
    let mut polled = Box::pin(batcher.submit(2));
    assert!(matches!(futures_util::poll!(&mut polled), Poll::Pending));
    drop(polled);
    assert_eq!(batcher.submit(3).await.unwrap(), 30);
    assert_eq!(processor.batches(), [[3]]);
}

impl ServiceError for Refused {
    fn kind(&self) -> Kind {
        Kind::State
    }

    fn reason(&self) -> Reason {
        Reason::from_proto("ERROR_REASON_SOLD_OUT")
    }
}

#[test]
fn processor_error_reaches_the_caller_unchanged() {
    let errors = [SubmitError::Item(Refused("sold out")), SubmitError::Batch(Arc::new(Refused("sold out")))];
    for error in errors {
        let status = crate::error::to_status(&error);
        assert_eq!((status.code(), status.message()), (tonic::Code::FailedPrecondition, "sold out"));
    }
}
