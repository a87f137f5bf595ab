//! Makes tickets whenever there is a job.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Pace;
use crate::app::App;

/// Works until `shutdown`; a batch under way is finished.
pub(super) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut pace = Pace::new("generator", app.generation.poll_every);
    while !shutdown.is_cancelled() {
        let ended = app.make_tickets(&shutdown).await;
        pace.wait(ended, &app.job_hint, &shutdown).await;
    }
}
