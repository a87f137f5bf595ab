//! The gRPC face of Notification: who, what, do, answer. No rule of its own.

use std::sync::Arc;

use onsale_kit::auth;
use onsale_proto::notification::v1::{
    EnqueueNotificationsRequest, EnqueueNotificationsResponse, GetDeliveryRequest, GetDeliveryResponse,
    ListDeadLettersRequest, ListDeadLettersResponse, RetryDeadLetterRequest, RetryDeadLetterResponse,
    notification_admin_service_server::NotificationAdminService,
    notification_internal_service_server::NotificationInternalService,
    notification_service_server::NotificationService,
};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status};

use crate::{app::App, convert};

/// Serves the contracts of Notification. What is not written here answers UNIMPLEMENTED, from the generated default (ADR 0003).
pub struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    /// The face of `app`.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
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
        let organizer = auth::identity(&request)?.organizer_id();
        let (list, query) = convert::list_dead_letters(request.into_inner())?;
        let letters = self.app.list_dead_letters(organizer, list).await?;
        Ok(Response::new(convert::dead_letters(letters, &query)))
    }

    async fn retry_dead_letter(
        &self,
        request: Request<RetryDeadLetterRequest>,
    ) -> Result<Response<RetryDeadLetterResponse>, Status> {
        let organizer = auth::identity(&request)?.organizer_id();
        let request = request.into_inner();
        let (request_id, delivery_id) = convert::retry_dead_letter(&request)?;
        let caller = organizer.to_string();
        let once = idempotency::Request::new("RetryDeadLetter", &caller, request_id, &request);
        Ok(Response::new(self.app.retry_dead_letter(organizer, &once, delivery_id).await?))
    }

    async fn get_delivery(
        &self,
        request: Request<GetDeliveryRequest>,
    ) -> Result<Response<GetDeliveryResponse>, Status> {
        let organizer = auth::identity(&request)?.organizer_id();
        let delivery_id = convert::get_delivery(request.get_ref())?;
        let delivery = self.app.get_delivery(organizer, delivery_id).await?;
        Ok(Response::new(GetDeliveryResponse { delivery: Some(convert::delivery(delivery)) }))
    }
}

#[tonic::async_trait]
impl NotificationInternalService for Grpc {
    async fn enqueue_notifications(
        &self,
        request: Request<EnqueueNotificationsRequest>,
    ) -> Result<Response<EnqueueNotificationsResponse>, Status> {
        let caller = auth::identity(&request)?.subject.clone();
        let request = request.into_inner();
        let (request_id, jobs) = convert::requests::enqueue(request.clone(), self.app.language_default())?;
        let once = idempotency::Request::new("EnqueueNotifications", &caller, request_id, &request);
        Ok(Response::new(self.app.enqueue(&once, &jobs).await?))
    }
}
