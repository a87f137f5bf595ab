//! Passes the calls of one public service on to where it runs: bytes in, bytes out, nothing decoded.
//!
//! Who calls has been verified by the chassis before. The service sees the caller's own token and verifies it again; the
//! gateway never lends its own, so that nobody from outside can look like a service. A token that says it *is* a service
//! has no business out here and is refused.

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

/// Answers for one service by asking it.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    public: Arc<PublicMethods>,
    channel: Channel,
}

impl Proxy {
    /// Passes on what is `public`, over `channel`, which must have no tokens of ours.
    pub(crate) fn new(public: Arc<PublicMethods>, channel: Channel) -> Self {
        Self { public, channel }
    }

    async fn forward(self, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
        // Second lock on the same door: only public services are served here in the first place.
        let method = self.public.get(request.uri().path()).ok_or(Error::NotPublic)?;
        let is_service = |identity: &Arc<Identity>| identity.roles.contains(Role::Service);
        if request.extensions().get().is_some_and(is_service) {
            return Err(AuthError::RoleMissing.into());
        }
        // A stream outlives the call that opens it; only its caller's own deadline, in the headers, ends it.
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

/// The same call, with only those headers that a service has a use for.
fn outgoing(request: Request<RequestBody>) -> Request<Body> {
    let (mut head, body) = request.into_parts();
    headers::retain_forwarded(&mut head.headers);
    // What the gateway found out about the caller is for the gateway.
    head.extensions.clear();
    Request::from_parts(head, Body::new(body))
}
