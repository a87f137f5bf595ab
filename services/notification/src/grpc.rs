//! gRPC handlers of Notification: authenticate, convert the request, run the use case, convert the result.

use std::sync::Arc;

use onsale_kit::auth;
use onsale_proto::notification::v1::{
    EnqueueNotificationsRequest, EnqueueNotificationsResponse, GetDeliveryRequest, GetDeliveryResponse,
    ListDeadLettersRequest, ListDeadLettersResponse, RetryDeadLetterRequest, RetryDeadLetterResponse,
    notification_admin_service_server::NotificationAdminService,
    notification_internal_service_server::NotificationInternalService,
    notification_service_server::NotificationService,
};
use prost::Message as _;
use tonic::{Request, Response, Status};

use crate::{
    app::App,
    convert::{requests, responses},
    error::Error,
};

/// Methods of the contract that are not here return UNIMPLEMENTED by the generated default (ADR 0003).
pub(crate) struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl NotificationService for Grpc {}

#[tonic::async_trait]
impl NotificationAdminService for Grpc {
    async fn list_dead_letters(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (list, query) = requests::list_dead_letters(request.get_ref())?;
        let page = self.app.list_dead_letters(organizer_id, list).await?;
        Ok(Response::new(responses::list_dead_letters(&page, &query)))
    }

    async fn retry_dead_letter(
        &self,
        request: Request<RetryDeadLetterRequest>,
    ) -> Result<Response<RetryDeadLetterResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let (caller, body) = (organizer_id.to_string(), request.get_ref().encode_to_vec());
        let (request_id, delivery_id) = requests::retry_dead_letter(request.get_ref())?;
        let once = responses::RETRY_DEAD_LETTER.request(&caller, request_id, &body);
        let answer = self.app.retry_dead_letter(organizer_id, &once, delivery_id).await?;
        let response = answer
            .into_response(responses::retry_dead_letter, |bytes| RetryDeadLetterResponse::decode(bytes));
        Ok(Response::new(response.map_err(Error::from)?))
    }

    async fn get_delivery(
        &self,
        request: Request<GetDeliveryRequest>,
    ) -> Result<Response<GetDeliveryResponse>, Status> {
        let organizer_id = auth::identity(&request)?.organizer_id();
        let delivery_id = requests::get_delivery(request.get_ref())?;
        let delivery = self.app.get_delivery(organizer_id, delivery_id).await?;
        Ok(Response::new(responses::get_delivery(&delivery)))
    }
}

#[tonic::async_trait]
impl NotificationInternalService for Grpc {
    async fn enqueue_notifications(
        &self,
        request: Request<EnqueueNotificationsRequest>,
    ) -> Result<Response<EnqueueNotificationsResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let body = request.get_ref().encode_to_vec();
        let default = self.app.language_default();
        let (request_id, jobs) = requests::enqueue_notifications(request.into_inner(), default)?;
        let once = responses::ENQUEUE_NOTIFICATIONS.request(&caller, request_id, &body);
        let answer = self.app.enqueue_notifications(&once, &jobs).await?;
        let response = answer.into_response(responses::enqueue_notifications, |bytes| {
            EnqueueNotificationsResponse::decode(bytes)
        });
        Ok(Response::new(response.map_err(Error::from)?))
    }
}
