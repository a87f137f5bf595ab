//! Job of the worker `generator`: app → store::generations → domain::generation → store::generations → outbox.
//!
//! Generates the tickets of due generations in batches. Each batch is one transaction that locks its sector and saves the
//! tickets with the sector's count. So any number of generators may run in any number of processes, and after a crash another
//! one continues from the saved count.

use onsale_kit::error::Chain;
use onsale_storage::postgres::Transaction;
use tokio_util::sync::CancellationToken;

use super::App;
use crate::{
    domain::{
        generation::{Batch, GenerationState, next_batch},
        ticketing_event::TicketingEvent,
    },
    error::Error,
    metrics,
    store::{
        generations::{self, DueGeneration},
        issuances,
    },
};

/// Maximum number of generations that one round reads.
const GENERATIONS_MAX: u32 = 16;

impl App {
    /// Works on the due generations until no sector is left to lock, or until `shutdown`.
    pub(crate) async fn generate_tickets(&self, shutdown: &CancellationToken) -> Result<(), Error> {
        for due in generations::due(&self.stores.postgres, GENERATIONS_MAX).await? {
            if shutdown.is_cancelled() {
                return Ok(());
            }
            if let Err(error) = self.run_generation(due, shutdown).await {
                self.record_failure(due, error).await?;
            }
        }
        Ok(())
    }

    async fn run_generation(&self, due: DueGeneration, shutdown: &CancellationToken) -> Result<(), Error> {
        let postgres = &self.stores.postgres;
        generations::start(postgres, due.generation_id).await?;
        let mut has_progress = false;
        while !shutdown.is_cancelled() {
            let Some(batch) = self.run_batch(due).await? else { break };
            has_progress = true;
            match batch {
                Batch::Generate { .. } => metrics::generated(batch.size()),
                Batch::Remove { .. } => {}
            }
        }
        if has_progress {
            generations::reset_failures(postgres, due.generation_id).await?;
        }
        self.complete_generation(due).await
    }

    /// Runs one batch of an unfinished sector that no other worker has locked. Returns `None` if there is no such sector.
    async fn run_batch(&self, due: DueGeneration) -> Result<Option<Batch>, Error> {
        let size_max = self.generation.batch_size;
        let work = |transaction: Transaction| async move {
            let Some(sector) = generations::lock_next_sector(&transaction, due.event_id).await? else {
                return Ok(None);
            };
            let batch = next_batch(sector.generated_count, sector.capacity, size_max);
            if let Some(batch) = batch {
                generations::apply(&transaction, sector.sector_id, batch).await?;
            }
            Ok(batch)
        };
        self.stores.postgres.transaction("make tickets", work).await
    }

    /// Completes the generation if all its sectors are complete; another worker may still be at one of them. Makes the pending
    /// orders of the event due.
    async fn complete_generation(&self, due: DueGeneration) -> Result<(), Error> {
        let DueGeneration { generation_id, event_id } = due;
        let work = |transaction: Transaction| async move {
            let open = generations::lock_open(&transaction, generation_id).await?;
            let Some(open) = open.filter(|open| open.is_complete) else { return Ok(None) };
            let complete_time = generations::complete(&transaction, generation_id).await?;
            issuances::make_due(&transaction, event_id).await?;
            let event = TicketingEvent::GenerationCompleted { generation: &open, complete_time };
            self.stores.outbox.append(&transaction, &[event]).await?;
            Ok::<_, Error>(Some(open.ticket_count))
        };
        let completed = self.stores.postgres.transaction("complete generation", work).await?;
        if let Some(ticket_count) = completed {
            self.stores.outbox.wake_relay();
            self.issuing_hint.notify_one();
            tracing::info!(%generation_id, %event_id, ticket_count, "ticket generation completed");
        }
        Ok(())
    }

    /// Counts the failure against the generation. An unavailable store is not the generation's failure: that error is returned,
    /// so that the worker backs off.
    async fn record_failure(&self, due: DueGeneration, error: Error) -> Result<(), Error> {
        if error.is_store_unavailable() {
            return Err(error);
        }
        metrics::generation_failed();
        let DueGeneration { generation_id, event_id } = due;
        let recorded =
            generations::record_failure(&self.stores.postgres, generation_id, &self.generation.retry).await?;
        let Some((failures, state)) = recorded else { return Ok(()) };
        let error = Chain(&error);
        if state == GenerationState::Failed {
            tracing::error!(
                %generation_id, %event_id, failures, %error,
                "ticket generation failed for the last time, the organizer can restart it"
            );
        } else {
            tracing::warn!(%generation_id, %event_id, failures, %error, "ticket generation failed, retrying");
        }
        Ok(())
    }
}
