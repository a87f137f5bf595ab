//! The job of an event, for its organizer: look at it, watch it, take it up again after it failed.

use std::sync::Arc;

use futures_util::{Stream, stream};
use onsale_proto::ticketing::v1 as pb;
use onsale_storage::idempotency::{self, Request};
use onsale_types::{EventId, GenerationId, OrganizerId};

use super::App;
use crate::{
    convert::responses::generation_to_pb, domain::generation::Generation, error::Error, store::generations,
};

/// Which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerationLookup {
    /// This one.
    Id(GenerationId),
    /// The newest of an event.
    NewestOf(EventId),
}

impl App {
    /// A job of an event of the organizer's.
    pub async fn get_generation(
        &self,
        organizer: OrganizerId,
        lookup: GenerationLookup,
    ) -> Result<Generation, Error> {
        let postgres = &self.stores.postgres;
        match lookup {
            GenerationLookup::NewestOf(event_id) => {
                self.admit(organizer, event_id).await?;
                let newest = generations::newest(postgres, event_id).await?;
                self.generation(newest.ok_or(Error::NoGeneration(event_id))?).await
            }
            GenerationLookup::Id(id) => {
                let generation = self.generation(id).await?;
                self.admit(organizer, generation.event_id).await.map_err(|error| match error {
                    // Who must not know of the event must not learn of it by its job.
                    Error::EventNotFound(_) => Error::GenerationNotFound(id),
                    error => error,
                })?;
                Ok(generation)
            }
        }
    }

    /// The job of an event of the organizer's, begun again if it had failed. An event has a job from its first plan on.
    pub async fn create_generation(
        &self,
        organizer: OrganizerId,
        request: &Request<'_>,
        event_id: EventId,
    ) -> Result<pb::CreateGenerationResponse, Error> {
        self.admit(organizer, event_id).await?;
        let newest = generations::newest(&self.stores.postgres, event_id).await?;
        let id = newest.ok_or(Error::NoGeneration(event_id))?;
        let answer = self.stores.postgres.transaction("create generation", |transaction| async move {
            let work = async {
                generations::take_up(&transaction, event_id).await?;
                let generation = generations::find_in(&transaction, id).await?;
                let generation = generation.ok_or(Error::GenerationNotFound(id))?;
                Ok(pb::CreateGenerationResponse { generation: Some(generation_to_pb(&generation)) })
            };
            idempotency::once(&transaction, request, work).await
        });
        let answer = answer.await;
        self.job_hint.notify_one();
        answer
    }

    /// The job as it is now, then whenever it has changed, until it is over. The caller must have been admitted to it.
    pub fn watch_generation(
        self: &Arc<Self>,
        now: Generation,
    ) -> impl Stream<Item = Result<Generation, Error>> + Send + use<> {
        let watch = Watch { app: Arc::clone(self), last: None, next: Some(now) };
        stream::try_unfold(watch, async |mut watch| {
            let Some(next) = watch.advance().await? else { return Ok(None) };
            Ok(Some((next, watch)))
        })
    }

    async fn generation(&self, id: GenerationId) -> Result<Generation, Error> {
        let generation = generations::find(&self.stores.postgres, id).await?;
        generation.ok_or(Error::GenerationNotFound(id))
    }
}

/// One watcher. It asks by itself, at a pace that is ours: a job lasts seconds, and few watch it.
struct Watch {
    app: Arc<App>,
    /// What the watcher has seen.
    last: Option<Generation>,
    /// What the watcher is to see first.
    next: Option<Generation>,
}

impl Watch {
    async fn advance(&mut self) -> Result<Option<Generation>, Error> {
        if let Some(first) = self.next.take() {
            return Ok(Some(self.see(first)));
        }
        loop {
            let Some(last) = self.last.as_ref().filter(|last| !last.is_over()) else { return Ok(None) };
            tokio::time::sleep(self.app.generation.watch_every).await;
            let now = self.app.generation(last.generation_id).await?;
            if now != *last {
                return Ok(Some(self.see(now)));
            }
        }
    }

    fn see(&mut self, generation: Generation) -> Generation {
        self.last.insert(generation).clone()
    }
}
