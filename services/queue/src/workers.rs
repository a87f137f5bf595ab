//! Background loops. What must be done by one pod only is done by the one that holds the lease; taking a turn there is
//! fenced, everything else is safe to do twice.

pub mod consumers;

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use onsale_kit::{
    BuildError,
    backoff::{Backoff, BackoffConfig},
    error::Chain,
};
use onsale_storage::lease::Candidacy;
use rand::RngExt;
use tokio::time::sleep;

use crate::{app::App, config::Config, error::Error};

/// Who leads is decided by the lease of this name.
const LEASE: &str = "line-keeper";

/// How often signs of life are carried to Redis.
const CARRY_INTERVAL: Duration = Duration::from_secs(1);

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
        }
    }

    async fn run(self, app: &App) -> Result<(), Error> {
        match self {
            Self::Open => app.open_due().await,
            Self::Turns => app.expire_turns().await,
            Self::Over => app.expire_over().await,
            Self::Unseen => app.expire_unseen().await,
            Self::Reconcile => app.heal_all().await,
            Self::Carry => app.carry_seen().await,
        }
    }
}

/// Starts all of them.
pub fn start(app: &Arc<App>, config: &Config) -> Result<(), BuildError> {
    let leader = Arc::new(app.stores.election.enter(LEASE)?);
    let tasks = &app.tasks;
    tasks.spawn("admission", admission(Arc::clone(app), Arc::clone(&leader)));
    for (chore, interval) in [
        (Chore::Open, config.sweep.interval),
        (Chore::Turns, config.sweep.interval),
        (Chore::Over, config.sweep.interval),
        (Chore::Unseen, config.sweep.idle_interval),
        (Chore::Reconcile, config.reconcile.interval),
    ] {
        tasks.spawn(chore.name(), every(Arc::clone(app), chore, interval, Some(Arc::clone(&leader))));
    }
    tasks.spawn(Chore::Carry.name(), every(Arc::clone(app), Chore::Carry, CARRY_INTERVAL, None));
    tasks.spawn("heal", heal(Arc::clone(app)));
    consumers::start(app)
}

/// Does a chore every `interval`, while this pod leads, or in any case without a `leader`.
async fn every(app: Arc<App>, chore: Chore, interval: Duration, leader: Option<Arc<Candidacy>>) {
    let shutdown = app.tasks.token();
    let mut backoff = Backoff::new(RETRY);
    let mut pause = jittered(interval);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(pause) => {}
        }
        pause = jittered(interval);
        if leader.as_ref().is_some_and(|leader| leader.lease().is_none()) {
            // A Redis that is away costs every leader the lease; what it missed meanwhile is known to nobody.
            app.seen.interrupted();
            continue;
        }
        match chore.run(&app).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(chore = chore.name(), error = %Chain(&error), "chore failed, trying again");
                pause = pause.max(backoff.next_delay().unwrap_or(RETRY.max));
            }
        }
    }
}

/// Grants turns every now and then, and as soon as a slot is free.
async fn admission(app: Arc<App>, leader: Arc<Candidacy>) {
    let shutdown = app.tasks.token();
    let Ok(channel) = app.ranks.keys().wake() else { return };
    let mut hints = app.hints.subscribe(&channel);
    let mut backoff = Backoff::new(RETRY);
    let mut pause = app.admission.interval;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep(pause) => {}
            Some(_hint) = hints.next() => sleep(GATHER).await,
            () = app.slot_freed.notified() => sleep(GATHER).await,
        }
        pause = app.admission.interval;
        let Some(lease) = leader.lease() else { continue };
        match app.admit_round(&lease).await {
            Ok(()) => backoff.reset(),
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "round of admission failed, trying again");
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
            wanted = app.healing.wanted() => wanted,
        };
        for event_id in wanted {
            let Err(error) = app.heal(event_id).await else {
                backoff.reset();
                continue;
            };
            tracing::warn!(%event_id, error = %Chain(&error), "failed to bring a line to redis, trying again");
            app.healing.want(event_id);
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
