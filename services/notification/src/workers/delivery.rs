//! The delivery worker: takes what is due, as much as it can send at once, and sends it.

use std::{sync::Arc, time::Duration};

use onsale_kit::{
    backoff::{Backoff, BackoffConfig},
    error::Chain,
};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Between tries to take something while the store is away.
const FAILURE_PAUSE: BackoffConfig = BackoffConfig {
    initial: Duration::from_millis(100),
    max: Duration::from_secs(5),
    multiplier: 2,
    attempts_max: u32::MAX,
};

/// Delivers until `shutdown`; then what is being sent is finished. Nothing is taken that is not sent at once, so nothing
/// is left behind.
pub(crate) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let config = app.delivery_config();
    let mut running = JoinSet::new();
    let mut failures = Backoff::new(FAILURE_PAUSE);
    while !shutdown.is_cancelled() {
        let room = config.concurrency.saturating_sub(running.len());
        let taken = if room > 0 { app.take_due(room).await.map(Some) } else { Ok(None) };
        let pause = match taken {
            // There may be more as soon as there is room again.
            Ok(None) => None,
            Ok(Some(taken)) => {
                failures.reset();
                for attempt in taken.attempts {
                    let app = Arc::clone(&app);
                    running.spawn(async move { app.attempt(attempt).await });
                }
                // There may be more at once: what is skipped needs no room, and must not make the rest wait.
                if taken.is_full {
                    continue;
                }
                Some(config.poll_every)
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "failed to take deliveries, trying again");
                Some(failures.next_delay().unwrap_or(FAILURE_PAUSE.max))
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            Some(ended) = running.join_next(), if !running.is_empty() => note(ended),
            () = app.hinted(), if pause.is_some() => {}
            () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
    while let Some(ended) = running.join_next().await {
        note(ended);
    }
}

/// An attempt that panicked leaves a delivery that is taken over when its lease ends.
fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an attempt to deliver ended without a word");
    }
}
