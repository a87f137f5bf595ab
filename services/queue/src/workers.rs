//! Background workers. Jobs that change queues by themselves run on the pod that leads the event, and their transactions
//! check its lease; the other jobs may run on several pods at once.

pub(crate) mod consumers;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use onsale_kit::{
    BuildError,
    backoff::BackoffConfig,
    server::Chassis,
    tasks::Tasks,
    worker::{Condition, Worker},
};

use crate::{app::App, config::Config, engine::leadership::LeaderShards, error::Error};

/// Time between two flushes of the heartbeats to Redis.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two viewer reports to the other pods.
const VIEWERS_INTERVAL: Duration = Duration::from_secs(5);

/// Delay of an admission round after a free slot was announced. The announcement may arrive before the commit is visible, and
/// one round serves all announcements of a burst.
const GATHER: Duration = Duration::from_millis(20);

const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Starts all workers and consumers.
pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    let tasks = chassis.tasks();
    let shards = &Arc::new(LeaderShards::enter(&app.engine.stores.election)?);
    start_admission(app, shards, config, tasks)?;
    start_milestones(app, shards, config, tasks);
    let (sweep, idle) = (config.sweep.interval, config.sweep.idle_interval);
    start_leader_job(app, shards, tasks, "opening sweep", sweep, |app, shards| async move {
        app.open_due_queues(&shards).await
    });
    start_leader_job(app, shards, tasks, "turn sweep", sweep, |app, shards| async move {
        app.expire_turns(&shards).await
    });
    start_leader_job(app, shards, tasks, "closing sweep", sweep, |app, shards| async move {
        app.end_closed_queues(&shards).await
    });
    start_leader_job(app, shards, tasks, "unseen sweep", idle, |app, shards| async move {
        app.expire_idle_entries(&shards).await
    });
    start_leader_job(app, shards, tasks, "reconcile", config.reconcile.interval, |app, shards| async move {
        if shards.leads_first() { app.reconcile_lines().await } else { Ok(()) }
    });
    start_jobs_of_every_pod(app, tasks);
    consumers::start(app)
}

/// Starts a job that runs while this pod leads a shard.
fn start_leader_job<F>(
    app: &Arc<App>,
    shards: &Arc<LeaderShards>,
    tasks: &Tasks,
    name: &'static str,
    interval: Duration,
    job: impl Fn(Arc<App>, Arc<LeaderShards>) -> F + Send + 'static,
) where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let engine = Arc::clone(&app.engine);
    // Without Redis every leader loses its leases and heartbeats are lost, so the idle window starts again.
    let condition = leads_any(shards).while_unmet(move || engine.heartbeats.interrupt());
    let (app, shards) = (Arc::clone(app), Arc::clone(shards));
    Worker::every(name, interval)
        .backoff(RETRY)
        .only_while(condition)
        .start(tasks, move || job(Arc::clone(&app), Arc::clone(&shards)));
}

/// Starts the admission of customers and the sliding of windows: every interval, when a slot becomes free, and when this pod
/// gains a shard.
fn start_admission(
    app: &Arc<App>,
    shards: &Arc<LeaderShards>,
    config: &Config,
    tasks: &Tasks,
) -> Result<(), BuildError> {
    let channel = app.engine.ranks.keys().wake()?;
    let announced = app.engine.hints.subscribe(&channel).map(|_hint| ());
    let (condition, freed) = (leads_any(shards), Arc::clone(&app.engine.slot_freed));
    let (app, shards) = (Arc::clone(app), Arc::clone(shards));
    Worker::every("admission", config.admission.interval)
        .backoff(RETRY)
        .hinted_by(announced)
        .notified_by(freed)
        .hint_delay(GATHER)
        .only_while(condition)
        .start(tasks, move || {
            let (app, shards) = (Arc::clone(&app), Arc::clone(&shards));
            async move {
                let (admitted, slid) = tokio::join!(app.admit_customers(&shards), app.slide_windows(&shards));
                admitted.and(slid)
            }
        });
    Ok(())
}

/// Starts the milestone pushes: every interval, and when turns were granted.
fn start_milestones(app: &Arc<App>, shards: &Arc<LeaderShards>, config: &Config, tasks: &Tasks) {
    let (condition, moved) = (leads_any(shards), Arc::clone(&app.engine.line_moved));
    let (app, shards) = (Arc::clone(app), Arc::clone(shards));
    Worker::every("milestones", config.admission.milestone_interval)
        .backoff(RETRY)
        .notified_by(moved)
        .only_while(condition)
        .start(tasks, move || {
            let (app, shards) = (Arc::clone(&app), Arc::clone(&shards));
            async move { app.push_milestones(&shards).await }
        });
}

/// Starts the jobs that every pod runs, whether it leads a shard or not.
fn start_jobs_of_every_pod(app: &Arc<App>, tasks: &Tasks) {
    let engine = Arc::clone(&app.engine);
    Worker::every("carry signs of life", FLUSH_INTERVAL).backoff(RETRY).start(tasks, move || {
        let engine = Arc::clone(&engine);
        async move { engine.flush_heartbeats().await }
    });
    let engine = Arc::clone(&app.engine);
    Worker::every("report viewers", VIEWERS_INTERVAL).backoff(RETRY).start(tasks, move || {
        let engine = Arc::clone(&engine);
        async move { engine.viewers.report().await }
    });
    let engine = Arc::clone(&app.engine);
    let requested = Arc::clone(&engine.reconcile_requests.notify);
    Worker::on_hints("heal").backoff(RETRY).notified_by(requested).start(tasks, move || {
        let engine = Arc::clone(&engine);
        async move { engine.reconcile_requested().await }
    });
}

fn leads_any(shards: &Arc<LeaderShards>) -> Condition {
    let leading = Arc::clone(shards);
    Condition::new(move || leading.leads_any(), shards.changes())
}
