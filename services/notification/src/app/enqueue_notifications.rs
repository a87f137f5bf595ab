//! Jobs from other services.

use onsale_proto::notification::v1::EnqueueNotificationsResponse;
use onsale_storage::idempotency::{self, Request};

use super::App;
use crate::{convert, domain::job::NewJob, error::Error, store};

/// What became of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// How many are new.
    pub accepted: u32,
    /// How many were known.
    pub duplicate: u32,
    /// When.
    pub time: onsale_types::Timestamp,
}

impl App {
    /// Takes jobs, all or none; those known already are not sent again.
    pub async fn enqueue(
        &self,
        request: &Request<'_>,
        jobs: &[NewJob],
    ) -> Result<EnqueueNotificationsResponse, Error> {
        let answer = self
            .stores
            .postgres
            .transaction("enqueue", |transaction| async move {
                let work = async {
                    let inserted = store::jobs::insert(&transaction, jobs).await?;
                    let given = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
                    let duplicate = given.saturating_sub(inserted.accepted);
                    let enqueued = Enqueued { accepted: inserted.accepted, duplicate, time: inserted.time };
                    Ok::<_, Error>(convert::enqueued(enqueued))
                };
                idempotency::once(&transaction, request, work).await
            })
            .await?;
        self.hint.notify_one();
        Ok(answer)
    }
}
