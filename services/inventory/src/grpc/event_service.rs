//! `EventService`.

use onsale_kit::auth;
use onsale_proto::inventory::v1::{self as pb, event_service_server::EventService};
use tonic::{Request, Response, Status};

use super::{Grpc, viewer};
use crate::convert::{requests, responses};

#[tonic::async_trait]
impl EventService for Grpc {
    async fn create_event(
        &self,
        request: Request<pb::CreateEventRequest>,
    ) -> Result<Response<pb::CreateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::create_event(&body)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::CREATE_EVENT, &caller, command.request_id, &body);
        let answer = self.app.create_event(&request, organizer_id, &command.draft).await?;
        Ok(Response::new(responses::create_event(answer)?))
    }

    async fn get_event(
        &self,
        request: Request<pb::GetEventRequest>,
    ) -> Result<Response<pb::GetEventResponse>, Status> {
        let viewer = viewer(&request);
        let event_id = requests::event_id(&request.get_ref().event_id)?;
        let found = self.app.get_event(viewer, event_id).await?;
        Ok(Response::new(responses::get_event(&found)))
    }

    async fn list_events(
        &self,
        request: Request<pb::ListEventsRequest>,
    ) -> Result<Response<pb::ListEventsResponse>, Status> {
        let viewer = viewer(&request);
        let (list, query) = requests::list_events(request.get_ref())?;
        let page = self.app.list_events(viewer, &list).await?;
        Ok(Response::new(responses::list_events(&page, &query)))
    }

    async fn update_event(
        &self,
        request: Request<pb::UpdateEventRequest>,
    ) -> Result<Response<pb::UpdateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::update_event(&body)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::UPDATE_EVENT, &caller, command.request_id, &body);
        let answer = self.app.update_event(&request, organizer_id, command.event_id, &command.change).await?;
        Ok(Response::new(responses::update_event(answer)?))
    }

    async fn activate_event(
        &self,
        request: Request<pb::ActivateEventRequest>,
    ) -> Result<Response<pb::ActivateEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::event_command(&body.request_id, &body.event_id)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::ACTIVATE_EVENT, &caller, command.request_id, &body);
        let answer = self.app.activate_event(&request, organizer_id, command.event_id).await?;
        Ok(Response::new(responses::activate_event(answer)?))
    }

    async fn end_event(
        &self,
        request: Request<pb::EndEventRequest>,
    ) -> Result<Response<pb::EndEventResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let body = request.into_inner();
        let command = requests::event_command(&body.request_id, &body.event_id)?;
        let caller = organizer_id.to_string();
        let request = requests::identify(&requests::END_EVENT, &caller, command.request_id, &body);
        let answer = self.app.end_event(&request, organizer_id, command.event_id).await?;
        Ok(Response::new(responses::end_event(answer)?))
    }
}
