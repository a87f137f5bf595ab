//! Background loops. What must be done by one pod only is done by the one that leads the event, and its transactions are
//! fenced; everything else is safe to do twice.

pub(crate) mod consumers;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use onsale_kit::{
    BuildError,
    backoff::{Backoff, BackoffConfig},
    error::Chain,
};
use rand::RngExt;
use tokio::time::sleep;

use crate::{app::App, config::Config, engine::leadership::LeaderShards, error::Error};

/// How often signs of life are carried to Redis.
const CARRY_INTERVAL: Duration = Duration::from_secs(1);

/// How often pods tell each other how many look at their events.
const VIEWERS_INTERVAL: Duration = Duration::from_secs(5);

/// How long after a hint at a free slot turns are granted: the hint may come a moment before the commit, and hints of a
/// burst are served together.
const GATHER: Duration = Duration::from_millis(20);

const RETRY: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Work that comes round.
#[derive(Clone, Copy, Debug)]
enum Chore {
    /// Opens queues whose time has come.
    Open,
    /// Ends turns that ran out.
    Turns,
    /// Ends the places in queues that closed for good.
    Over,
    /// Ends the places of those who are gone.
    Unseen,
    /// Compares Redis with Postgres.
    Reconcile,
    /// Carries signs of life to Redis.
    Carry,
    /// Reports to the other pods how many look at what.
    Viewers,
}

impl Chore {
    const fn name(self) -> &'static str {
        match self {
            Self::Open => "opening sweep",
            Self::Turns => "turn sweep",
            Self::Over => "closing sweep",
            Self::Unseen => "unseen sweep",
            Self::Reconcile => "reconcile",
            Self::Carry => "carry signs of life",
            Self::Viewers => "report viewers",
        }
    }

    async fn run(self, app: &App, shards: &LeaderShards) -> Result<(), Error> {
        match self {
            Self::Open => app.open_due_queues(shards).await,
            Self::Turns => app.expire_turns(shards).await,
            Self::Over => app.end_closed_queues(shards).await,
            Self::Unseen => app.expire_idle_entries(shards).await,
            Self::Reconcile if shards.leads_first() => app.reconcile_all().await,
            Self::Reconcile => Ok(()),
            Self::Carry => app.flush_heartbeats().await,
            Self::Viewers => app.viewers.report().await,
        }
    }

    /// Whether there is nothing to do for a pod that leads nothing.
    const fn is_leaders(self) -> bool {
        match self {
            Self::Open | Self::Turns | Self::Over | Self::Unseen | Self::Reconcile => true,
            Self::Carry | Self::Viewers => false,
        }
    }
}

/// Starts all of them.
pub(crate) fn start(app: &Arc<App>, config: &Config) -> Result<(), BuildError> {
    let shards = Arc::new(LeaderShards::enter(&app.stores.election)?);
    let tasks = &app.tasks;
    tasks.spawn("admission", admission(Arc::clone(app), Arc::clone(&shards)));
    tasks.spawn("milestones", milestones(Arc::clone(app), Arc::clone(&shards)));
    for (chore, interval) in [
        (Chore::Open, config.sweep.interval),
        (Chore::Turns, config.sweep.interval),
        (Chore::Over, config.sweep.interval),
        (Chore::Unseen, config.sweep.idle_interval),
        (Chore::Reconcile, config.reconcile.interval),
        (Chore::Carry, CARRY_INTERVAL),
        (Chore::Viewers, VIEWERS_INTERVAL),
    ] {
        tasks.spawn(chore.name(), every(Arc::clone(app), chore, interval, Arc::clone(&shards)));
    }
    tasks.spawn("heal", heal(Arc::clone(app)));
    consumers::start(app)
}

/// Does a chore every `interval`; a leader's while this pod leads something.
async fn every(app: Arc<App>, chore: Chore, interval: Duration, shards: Arc<LeaderShards>) {
    let shutdown = app.tasks.token();
    let mut backoff = Backoff::new(RETRY);
    let mut pause = jittered(interval);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = jittered(interval);
        if chore.is_leaders() && !shards.leads_any() {
            // A Redis that is away costs every leader its leases; what it missed meanwhile is known to nobody.
            app.seen.interrupt();
            continue;
        }
        match chore.run(&app, &shards).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(chore = chore.name(), error = %Chain(&error), "chore failed, trying again");
                pause = pause.max(backoff.next_delay().unwrap_or(RETRY.max));
            }
        }
    }
}

/// Grants turns and slides windows every now and then, as soon as a slot is free, and as soon as this pod leads.
async fn admission(app: Arc<App>, shards: Arc<LeaderShards>) {
    let shutdown = app.tasks.token();
    let Ok(channel) = app.ranks.keys().wake() else { return };
    let mut hints = app.hints.subscribe(&channel);
    let mut changes = shards.changes();
    let mut backoff = Backoff::new(RETRY);
    let mut pause = app.admission.interval;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(pause) => {}
            Some(_hint) = hints.next() => sleep(GATHER).await,
            () = app.slot_freed.notified() => sleep(GATHER).await,
            Some(()) = changes.next() => {}
        }
        pause = app.admission.interval;
        if !shards.leads_any() {
            continue;
        }
        let (admitted, slid) = tokio::join!(app.admit_customers(&shards), app.slide_windows(&shards));
        match admitted.and(slid) {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "round of admission failed, trying again");
                pause = pause.max(backoff.next_delay().unwrap_or(RETRY.max));
            }
        }
    }
}

/// Tells who passed a milestone, every now and then and when turns were granted.
async fn milestones(app: Arc<App>, shards: Arc<LeaderShards>) {
    let shutdown = app.tasks.token();
    let mut backoff = Backoff::new(RETRY);
    let mut pause = app.admission.milestone_interval;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(pause) => {}
            () = app.line_moved.notified() => {}
        }
        pause = app.admission.milestone_interval;
        if !shards.leads_any() {
            continue;
        }
        match app.push_milestones(&shards).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "round of milestones failed, trying again");
                pause = pause.max(backoff.next_delay().unwrap_or(RETRY.max));
            }
        }
    }
}

/// Tells Redis again what it seems to have lost.
async fn heal(app: Arc<App>) {
    let shutdown = app.tasks.token();
    let mut backoff = Backoff::new(RETRY);
    loop {
        let wanted = tokio::select! {
            () = shutdown.cancelled() => return,
            wanted = app.reconcile_requests.wanted() => wanted,
        };
        for event_id in wanted {
            let Err(error) = app.heal(event_id).await else {
                backoff.reset();
                continue;
            };
            tracing::warn!(%event_id, error = %Chain(&error), "failed to bring a line to redis, trying again");
            app.reconcile_requests.want(event_id);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep(backoff.next_delay().unwrap_or(RETRY.max)) => {}
            }
        }
    }
}

/// About `interval`, so that pods do not work in step.
fn jittered(interval: Duration) -> Duration {
    let tenth_micros = u64::try_from((interval / 10).as_micros()).unwrap_or(u64::MAX);
    interval.saturating_add(Duration::from_micros(rand::rng().random_range(0..=tenth_micros)))
}
