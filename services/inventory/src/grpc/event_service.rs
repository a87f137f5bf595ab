//! `EventService`.

use onsale_kit::auth;
use onsale_proto::inventory::v1::{self as pb, event_service_server::EventService};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status};

use super::{Grpc, viewer};
use crate::convert;

#[tonic::async_trait]
impl EventService for Grpc {
    async fn create_event(
        &self,
        request: Request<pb::CreateEventRequest>,
    ) -> Result<Response<pb::CreateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::create_event(&body)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("CreateEvent", &caller, command.request_id, &body);
        Ok(Response::new(self.app.create_event(&once, organizer_id, &command.draft).await?))
    }

    async fn get_event(
        &self,
        request: Request<pb::GetEventRequest>,
    ) -> Result<Response<pb::GetEventResponse>, Status> {
        let viewer = viewer(&request);
        let event_id = convert::event_id(&request.get_ref().event_id)?;
        Ok(Response::new(self.app.get_event(viewer, event_id).await?))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let viewer = viewer(&request);
        let (list, query) = convert::list_events(request.get_ref())?;
        let page = self.app.list_events(viewer, &list).await?;
        Ok(Response::new(convert::listed(&page, &query)))
    }

    async fn update_event(
        &self,
        request: Request<pb::UpdateEventRequest>,
    ) -> Result<Response<pb::UpdateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::update_event(&body)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("UpdateEvent", &caller, command.request_id, &body);
        let answer = self.app.update_event(&once, organizer_id, command.event_id, &command.change).await?;
        Ok(Response::new(answer))
    }

    async fn activate_event(
        &self,
        request: Request<pb::ActivateEventRequest>,
    ) -> Result<Response<pb::ActivateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::event_command(&body.request_id, &body.event_id)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("ActivateEvent", &caller, command.request_id, &body);
        Ok(Response::new(self.app.activate_event(&once, organizer_id, command.event_id).await?))
    }

    async fn end_event(
        &self,
        request: Request<pb::EndEventRequest>,
    ) -> Result<Response<pb::EndEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = convert::event_command(&body.request_id, &body.event_id)?;
        let caller = organizer_id.to_string();
        let once = idempotency::Request::new("EndEvent", &caller, command.request_id, &body);
        Ok(Response::new(self.app.end_event(&once, organizer_id, command.event_id).await?))
    }
}
