//! `GetGeneration`: grpc → app → store::generations → domain::event.

use onsale_types::{GenerationId, OrganizerId};

use super::App;
use crate::{
    domain::generation::{Generation, GenerationLookup},
    error::Error,
    store::generations,
};

impl App {
    /// Returns a generation of an event that the organizer owns.
    pub(crate) async fn get_generation(
        &self,
        organizer_id: OrganizerId,
        lookup: GenerationLookup,
    ) -> Result<Generation, Error> {
        match lookup {
            GenerationLookup::NewestOf(event_id) => {
                self.check_owner(event_id, organizer_id).await?;
                let newest = generations::newest(&self.stores.postgres, event_id).await?;
                self.read_generation(newest.ok_or(Error::EventHasNoGeneration { event_id })?).await
            }
            GenerationLookup::Id(generation_id) => {
                let generation = self.read_generation(generation_id).await?;
                let access = self.check_owner(generation.event_id, organizer_id).await;
                access.map_err(|error| match error {
                    // The generation must not reveal that a hidden draft exists.
                    Error::EventNotFound { .. } => Error::GenerationNotFound { generation_id },
                    error => error,
                })?;
                Ok(generation)
            }
        }
    }

    pub(super) async fn read_generation(&self, generation_id: GenerationId) -> Result<Generation, Error> {
        let generation = generations::get(&self.stores.postgres, generation_id).await?;
        generation.ok_or(Error::GenerationNotFound { generation_id })
    }
}
