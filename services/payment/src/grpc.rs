//! gRPC handlers of Payment: authenticate, convert the request, run the use case, convert the result.

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
use prost::Message as _;
use tonic::{Request, Response, Status, codegen::BoxStream};

use crate::{
    app::App,
    convert::{requests, responses},
    domain::Viewer,
};

#[derive(Debug)]
pub(crate) struct Grpc {
    app: Arc<App>,
    /// Origins of the web pages to which providers may send customers.
    origins: Vec<String>,
}

impl Grpc {
    pub(crate) fn new(app: Arc<App>, origins: Vec<String>) -> Self {
        Self { app, origins }
    }
}

#[tonic::async_trait]
impl PaymentService for Grpc {
    async fn create_payment(
        &self,
        request: Request<CreatePaymentRequest>,
    ) -> Result<Response<CreatePaymentResponse>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let (caller, body) = (customer_id.to_string(), request.get_ref().encode_to_vec());
        let command = requests::create_payment(request.get_ref(), &self.origins)?;
        let once = responses::CREATE_PAYMENT.request(&caller, command.request_id, &body);
        let decode = responses::decode_payment_id;
        let payment = self.app.create_payment(customer_id, command, &once, decode).await?;
        Ok(Response::new(responses::create_payment(&payment)))
    }

    async fn get_payment(
        &self,
        request: Request<GetPaymentRequest>,
    ) -> Result<Response<GetPaymentResponse>, Status> {
        let viewer = viewer(auth::identity(&request)?);
        let lookup = requests::get_payment(request.into_inner())?;
        let payment = self.app.get_payment(viewer, lookup).await?;
        Ok(Response::new(responses::get_payment(&payment)))
    }

    async fn watch_payment(
        &self,
        request: Request<WatchPaymentRequest>,
    ) -> Result<Response<BoxStream<WatchPaymentResponse>>, Status> {
        let customer_id = auth::identity(&request)?.customer_id();
        let payment_id = requests::watch_payment(request.get_ref())?;
        let payments = Arc::clone(&self.app).watch_payment(customer_id, payment_id).await?;
        let messages = payments.map(|payment| Ok(responses::watch_payment(&payment.map_err(Status::from)?)));
        Ok(Response::new(Box::pin(messages)))
    }

    async fn refund_payment(
        &self,
        request: Request<RefundPaymentRequest>,
    ) -> Result<Response<RefundPaymentResponse>, Status> {
        let identity = auth::identity(&request)?;
        // Customers may see their payments but not refund them.
        let viewer = Viewer { customer_id: None, ..viewer(identity) };
        let caller = format!("{}:{}", identity.issuer, identity.subject);
        let body = request.get_ref().encode_to_vec();
        let command = requests::refund_payment(request.get_ref(), viewer.is_service)?;
        let once = responses::REFUND_PAYMENT.request(&caller, command.request_id, &body);
        let payment = self.app.refund_payment(viewer, command, &once).await?;
        Ok(Response::new(responses::refund_payment(&payment)))
    }
}

#[tonic::async_trait]
impl PaymentInternalService for Grpc {
    async fn handle_webhook(
        &self,
        request: Request<HandleWebhookRequest>,
    ) -> Result<Response<HandleWebhookResponse>, Status> {
        let command = requests::handle_webhook(request.into_inner())?;
        let is_duplicate = self.app.handle_webhook(command).await?;
        Ok(Response::new(responses::handle_webhook(is_duplicate)))
    }
}

fn viewer(identity: &Identity) -> Viewer {
    let has = |role| identity.roles.contains(role);
    Viewer {
        is_service: has(Role::Service),
        customer_id: has(Role::Customer).then(|| identity.customer_id()),
        organizer_id: has(Role::Organizer).then(|| identity.organizer_id()),
    }
}
