//! Issues orders that were paid before their tickets existed.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Pace;
use crate::app::{App, issue_tickets::Round};

/// Works until `shutdown`; an order under way is finished.
pub(super) async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut pace = Pace::new("issuer", app.issuing.poll_every);
    while !shutdown.is_cancelled() {
        let ended = match app.issue_waiting().await {
            Ok(Round::Full) => continue,
            Ok(Round::Done) => Ok(()),
            Err(error) => Err(error),
        };
        pace.wait(ended, &app.order_hint, &shutdown).await;
    }
}
