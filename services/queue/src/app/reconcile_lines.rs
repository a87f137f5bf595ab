//! Job `reconcile`: workers → app → store::queues → engine::reconcile.

use super::App;
use crate::{error::Error, store::queues};

impl App {
    /// Requests a reconciliation of every line with waiting entries. The worker `heal` does the work and retries failures.
    pub(crate) async fn reconcile_lines(&self) -> Result<(), Error> {
        for event_id in queues::waiting(&self.engine.stores.postgres).await? {
            self.engine.reconcile_requests.request(event_id);
        }
        Ok(())
    }
}
