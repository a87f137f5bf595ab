//! Forwards the calls of one public service to the service as raw bytes, without decoding messages.
//!
//! The chassis has verified the caller's token before. The service receives the same token and verifies it again; the gateway
//! never adds its own token, so an outside caller cannot appear as a service. Calls with a token of role SERVICE are refused.

use std::{convert::Infallible, sync::Arc};

use http::{Request, Response};
use onsale_kit::{
    auth::{AuthError, Identity},
    client::Channel,
    deadline::Deadline,
    server::{Handler, RequestBody},
};
use onsale_proto::auth::v1::Role;
use tonic::{Status, body::Body, codegen::BoxFuture};

use crate::{error::Error, public::PublicMethods};

mod headers;
mod response;

/// gRPC handler that forwards the calls of one service.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    public: Arc<PublicMethods>,
    channel: Channel,
}

impl Proxy {
    /// Forwards `public` methods over `channel`, which must not add tokens of the gateway.
    pub(crate) fn new(public: Arc<PublicMethods>, channel: Channel) -> Self {
        Self { public, channel }
    }

    async fn forward(self, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
        // Second check: handlers are registered for public services only, but a service could also have internal methods.
        let method = self.public.get(request.uri().path()).ok_or(Error::NotPublic)?;
        let is_service = |identity: &Arc<Identity>| identity.roles.contains(Role::Service);
        if request.extensions().get().is_some_and(is_service) {
            return Err(AuthError::RoleMissing.into());
        }
        // A stream outlives the default deadline; only the caller's own deadline, forwarded as a header, limits it.
        let deadline = if method.server_streaming { None } else { Deadline::current() };
        let response = self.channel.call_within(outgoing(request), deadline).await;
        response::ensure_status(response.map_err(response::public_status)?, method.server_streaming).await
    }
}

impl Handler for Proxy {
    fn call(&self, request: Request<RequestBody>) -> BoxFuture<Response<Body>, Infallible> {
        let proxy = self.clone();
        Box::pin(async move { Ok(proxy.forward(request).await.unwrap_or_else(Status::into_http)) })
    }
}

/// Builds the forwarded request: same path and body, listed headers only.
fn outgoing(request: Request<RequestBody>) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    headers::retain_forwarded(&mut head.headers);
    // Extensions hold the identity that the gateway verified. The service must not rely on it.
    head.extensions.clear();
    Request::from_parts(head, Body::new(body))
}
