//! gRPC-Web for browsers: unwraps each call and passes it through the same checks as a gRPC call.

use std::{convert::Infallible, future::Future};

use axum::{
    body::Body as WebBody,
    response::{IntoResponse, Response},
};
use http::{Request, StatusCode, header::CONTENT_TYPE};
use onsale_kit::server::SecondaryEndpoint;
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service, ServiceExt};

use super::limits::refuse;

/// Returns a service for gRPC and gRPC-Web calls. All other requests receive a 404.
pub(super) fn service(
    endpoint: SecondaryEndpoint,
) -> impl Service<
    Request<WebBody>,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Result<Response, Infallible>> + Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let serve_call = tower::service_fn(move |request: Request<Body>| {
        let endpoint = endpoint.clone();
        async move { Ok::<_, Infallible>(endpoint.call(request).await) }
    });
    let calls = GrpcWebLayer::new().layer(serve_call);
    tower::service_fn(move |request: Request<WebBody>| {
        let calls = calls.clone();
        async move {
            if !is_grpc(&request) {
                return Ok(refuse(StatusCode::NOT_FOUND, "not found"));
            }
            calls.oneshot(request).await.map(IntoResponse::into_response)
        }
    })
}

fn is_grpc(request: &Request<WebBody>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}
