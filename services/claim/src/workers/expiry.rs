//! Gives up claims that are not paid in time, by the database's clock. Any number of processes may do so at once.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Rounds;
use crate::app::App;

/// Runs until `shutdown`.
pub(super) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut rounds = Rounds::new("expiry", app.claims.expire_every);
    let batch_max = usize::try_from(app.claims.expire_batch_max).unwrap_or(usize::MAX);
    while !shutdown.is_cancelled() {
        let wait = rounds.round(async { Ok(app.expire_claims().await? >= batch_max) }).await;
        shutdown.run_until_cancelled(tokio::time::sleep(wait)).await;
    }
}
