//! `InventoryService`.

use futures_util::stream;
use onsale_proto::inventory::v1::{self as pb, inventory_service_server::InventoryService};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::{Grpc, viewer};
use crate::convert;

#[tonic::async_trait]
impl InventoryService for Grpc {
    async fn get_availability(
        &self,
        request: Request<pb::GetAvailabilityRequest>,
    ) -> Result<Response<pb::GetAvailabilityResponse>, Status> {
        let viewer = viewer(&request);
        let body = request.into_inner();
        let (event_id, sectors) = convert::availability_query(&body.event_id, &body.sector_ids)?;
        let found = self.app.get_availability(viewer, event_id, &sectors).await?;
        let poll_after = self.app.config().availability.poll_after;
        Ok(Response::new(convert::availability_response(&found, poll_after)))
    }

    async fn watch_availability(
        &self,
        request: Request<pb::WatchAvailabilityRequest>,
    ) -> Result<Response<BoxStream<pb::WatchAvailabilityResponse>>, Status> {
        let viewer = viewer(&request);
        let body = request.into_inner();
        let (event_id, sectors) = convert::availability_query(&body.event_id, &body.sector_ids)?;
        let watching = self.app.watch_availability(viewer, event_id, sectors).await?;
        let updates = stream::unfold(watching, |mut watching| async {
            let change = watching.next().await?;
            Some((Ok(convert::change(&change)), watching))
        });
        Ok(Response::new(Box::pin(updates)))
    }
}
