//! Works on jobs: batch by batch, each in one transaction that holds its sector, until every unit has its ticket.
//!
//! Any number of workers in any number of processes may do this at once, and each may die at any moment: a batch and the
//! count of what exists are one commit, and whoever comes next goes on from there.

use onsale_kit::error::Chain;
use onsale_storage::messaging::NewEvent;
use tokio_util::sync::CancellationToken;

use super::App;
use crate::{
    convert::events::generation_completed,
    domain::generation::{Batch, GenerationState, next_batch},
    error::Error,
    metrics,
    store::{
        generations::{self, DueJob},
        issuances,
    },
};

/// How many jobs are looked up at once.
const JOBS_MAX: i64 = 16;

impl App {
    /// Works on every job that is due, until none has anything left to do or `shutdown`.
    pub async fn make_tickets(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        for job in generations::due(&self.stores.postgres, JOBS_MAX).await? {
            if shutdown.is_cancelled() {
                return Ok(());
            }
            if let Err(error) = self.work_on(job, shutdown).await {
                self.note_failure(job, error).await?;
            }
        }
        Ok(())
    }

    async fn work_on(&self, job: DueJob, shutdown: &CancellationToken) -> Result<(), Error> {
        generations::begin(&self.stores.postgres, job.generation_id).await?;
        let mut has_done = false;
        while !shutdown.is_cancelled() {
            let Some(batch) = self.do_batch(job).await? else { break };
            has_done = true;
            match batch {
                Batch::Make { .. } => metrics::generated(batch.size()),
                Batch::Trim { .. } => {}
            }
        }
        if has_done {
            generations::succeed(&self.stores.postgres, job.generation_id).await?;
        }
        self.complete(job).await
    }

    /// One batch of a sector that nobody else has; none when there is no such sector.
    async fn do_batch(&self, job: DueJob) -> Result<Option<Batch>, Error> {
        let size_max = self.generation.batch_size;
        let batch = self.stores.postgres.transaction("make tickets", |transaction| async move {
            let Some(sector) = generations::claim_sector(&transaction, job.event_id).await? else {
                return Ok(None);
            };
            let batch = next_batch(sector.generated_count, sector.capacity, size_max);
            if let Some(batch) = batch {
                generations::apply(&transaction, sector.sector_id, batch).await?;
            }
            Ok(batch)
        });
        batch.await
    }

    /// Completes the job if every sector is done; another worker may still be at one.
    async fn complete(&self, job: DueJob) -> Result<(), Error> {
        let id = job.generation_id;
        let completed = self.stores.postgres.transaction("complete generation", |transaction| async move {
            let open = generations::lock_open(&transaction, id).await?;
            let Some(open) = open.filter(|open| open.is_complete) else { return Ok(None) };
            let time = generations::complete(&transaction, id).await?;
            issuances::hasten(&transaction, job.event_id).await?;
            let event = generation_completed(id, &open, time);
            self.stores.outbox.append(&transaction, &[NewEvent::new(job.event_id, &event)]).await?;
            Ok::<_, Error>(Some(open.ticket_count))
        });
        if let Some(ticket_count) = completed.await? {
            self.stores.outbox.wake_relay();
            self.order_hint.notify_one();
            tracing::info!(generation_id = %id, event_id = %job.event_id, ticket_count, "tickets generated");
        }
        Ok(())
    }

    /// Counts the failure against the job, unless the store itself is away: then the worker waits.
    async fn note_failure(&self, job: DueJob, error: Error) -> Result<(), Error> {
        if error.is_outage() {
            return Err(error);
        }
        metrics::generation_failed();
        let failed =
            generations::fail(&self.stores.postgres, job.generation_id, &self.generation.retry).await?;
        let Some((failures, state)) = failed else { return Ok(()) };
        let (generation_id, error) = (job.generation_id, Chain(&error));
        if state == GenerationState::Failed {
            tracing::error!(%generation_id, event_id = %job.event_id, failures, %error, "generation failed");
        } else {
            tracing::warn!(%generation_id, event_id = %job.event_id, failures, %error, "generation stumbled, trying again");
        }
        Ok(())
    }
}
