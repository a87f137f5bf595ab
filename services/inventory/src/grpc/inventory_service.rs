//! `InventoryService`.

use futures_util::stream;
use onsale_proto::inventory::v1::{self as pb, inventory_service_server::InventoryService};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::{Grpc, viewer};
use crate::convert::{requests, responses};

#[tonic::async_trait]
impl InventoryService for Grpc {
    async fn get_availability(
        &self,
        request: Request<pb::GetAvailabilityRequest>,
    ) -> Result<Response<pb::GetAvailabilityResponse>, Status> {
        let viewer = viewer(&request);
        let body = request.into_inner();
        let (event_id, sectors) = requests::availability_query(&body.event_id, &body.sector_ids)?;
        let found = self.app.get_availability(viewer, event_id, &sectors).await?;
        let poll_after = self.app.config().availability.poll_after;
        Ok(Response::new(responses::get_availability(&found, poll_after)))
    }

    async fn watch_availability(
        &self,
        request: Request<pb::WatchAvailabilityRequest>,
    ) -> Result<Response<BoxStream<pb::WatchAvailabilityResponse>>, Status> {
        let viewer = viewer(&request);
        let body = request.into_inner();
        let (event_id, sectors) = requests::availability_query(&body.event_id, &body.sector_ids)?;
        let watcher = self.app.watch_availability(viewer, event_id, sectors).await?;
        let updates = stream::unfold(watcher, |mut watcher| async {
            let update = watcher.next().await?;
            Some((Ok(responses::availability_update(&update)), watcher))
        });
        Ok(Response::new(Box::pin(updates)))
    }
}
