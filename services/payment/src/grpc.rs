//! The gRPC face of Payment: who, what, do, answer. No rule of its own.

use std::sync::Arc;

use futures_util::StreamExt;
use onsale_kit::auth::{self, Identity};
use onsale_proto::{
    auth::v1::Role,
    payment::v1::{
        CreatePaymentRequest, CreatePaymentResponse, GetPaymentRequest, GetPaymentResponse,
        HandleWebhookRequest, HandleWebhookResponse, RefundPaymentRequest, RefundPaymentResponse,
        WatchPaymentRequest, WatchPaymentResponse, payment_internal_service_server::PaymentInternalService,
        payment_service_server::PaymentService,
    },
};
use onsale_storage::idempotency;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    app::{App, Viewer},
    convert::{self, CreatePayment, HandleWebhook, Lookup, RefundPayment},
};

/// Serves the contracts of Payment.
#[derive(Debug)]
pub struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    /// Serves what `app` does.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl PaymentService for Grpc {
    async fn create_payment(
        &self,
        request: Request<CreatePaymentRequest>,
    ) -> Result<Response<CreatePaymentResponse>, Status> {
        let customer = auth::identity(&request)?.customer_id();
        let message = request.into_inner();
        let command = CreatePayment::read(&message, &self.app.origins)?;
        let caller = customer.to_string();
        let again = idempotency::Request::new("CreatePayment", &caller, command.request_id, &message);
        let payment = self.app.create_payment(customer, command, &again).await?;
        Ok(Response::new(CreatePaymentResponse { payment: Some(convert::payment(&payment)) }))
    }

    async fn get_payment(
        &self,
        request: Request<GetPaymentRequest>,
    ) -> Result<Response<GetPaymentResponse>, Status> {
        let viewer = viewer(auth::identity(&request)?);
        let lookup = Lookup::try_from(request.into_inner())?;
        let payment = self.app.get_payment(viewer, lookup).await?;
        Ok(Response::new(GetPaymentResponse { payment: Some(convert::payment(&payment)) }))
    }

    async fn watch_payment(
        &self,
        request: Request<WatchPaymentRequest>,
    ) -> Result<Response<BoxStream<WatchPaymentResponse>>, Status> {
        let customer = auth::identity(&request)?.customer_id();
        let id = convert::payment_id(&request.into_inner().payment_id)?;
        let payments = Arc::clone(&self.app).watch_payment(customer, id).await?;
        let answers = payments.map(|payment| {
            Ok(WatchPaymentResponse { payment: Some(convert::payment(&payment.map_err(Status::from)?)) })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn refund_payment(
        &self,
        request: Request<RefundPaymentRequest>,
    ) -> Result<Response<RefundPaymentResponse>, Status> {
        let identity = auth::identity(&request)?;
        // A customer sees their payment, and may not give themselves the money back.
        let viewer = Viewer { customer: None, ..viewer(identity) };
        let caller = format!("{}:{}", identity.issuer, identity.subject);
        let message = request.into_inner();
        let command = RefundPayment::read(&message, viewer.is_service)?;
        let again = idempotency::Request::new("RefundPayment", &caller, command.request_id, &message);
        let payment = self.app.refund_payment(viewer, command, &again).await?;
        Ok(Response::new(RefundPaymentResponse { payment: Some(convert::payment(&payment)) }))
    }
}

#[tonic::async_trait]
impl PaymentInternalService for Grpc {
    async fn handle_webhook(
        &self,
        request: Request<HandleWebhookRequest>,
    ) -> Result<Response<HandleWebhookResponse>, Status> {
        let command = HandleWebhook::try_from(request.into_inner())?;
        let duplicate = self.app.handle_webhook(command).await?;
        Ok(Response::new(HandleWebhookResponse { duplicate }))
    }
}

fn viewer(identity: &Identity) -> Viewer {
    let has = |role| identity.roles.contains(role);
    Viewer {
        is_service: has(Role::Service),
        customer: has(Role::Customer).then(|| identity.customer_id()),
        organizer: has(Role::Organizer).then(|| identity.organizer_id()),
    }
}
