//! `EnqueueNotifications`: grpc → app → store::jobs.

use onsale_storage::idempotency::{Answer, Request};

use super::App;
use crate::{
    domain::job::{EnqueueResult, NewJob},
    error::Error,
    store,
};

impl App {
    /// Stores the jobs that are new, in one transaction.
    pub(crate) async fn enqueue_notifications(
        &self,
        request: &Request<'_, EnqueueResult>,
        jobs: &[NewJob],
    ) -> Result<Answer<EnqueueResult>, Error> {
        let answer = self
            .stores
            .postgres
            .transaction("enqueue", |transaction| async move {
                let work = async {
                    let inserted = store::jobs::insert(&transaction, jobs).await?;
                    let accepted_count = inserted.accepted_count;
                    let given = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
                    let duplicate_count = given.saturating_sub(accepted_count);
                    let enqueue_time = inserted.enqueue_time;
                    Ok::<_, Error>(EnqueueResult { accepted_count, duplicate_count, enqueue_time })
                };
                request.once(&transaction, work).await
            })
            .await?;
        self.delivery_hints.notify_one();
        Ok(answer)
    }
}
