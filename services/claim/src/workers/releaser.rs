//! Gives back holds: those noted for release, and those that became no claim. Any number of processes may do so at once.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Rounds;
use crate::app::App;

/// Runs until `shutdown`.
pub(super) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut rounds = Rounds::new("releaser", app.holds.release_every);
    while !shutdown.is_cancelled() {
        let wait = rounds.round(app.reconcile_holds()).await;
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
            () = app.release_hint.notified() => {}
        }
    }
}
