//! Handlers of the contract in four steps: identify the caller, read the request, call the use case, encode its result.

mod event_service;
mod internal_service;
mod inventory_service;
mod quota_service;

use std::sync::Arc;

use onsale_kit::auth;
use onsale_proto::auth::v1::Role;
use tonic::Request;

use crate::{app::App, domain::event::Viewer};

/// Serves the contracts of Inventory.
pub(crate) struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

/// Returns the caller of a method that shows events; such methods need no token.
fn viewer<T>(request: &Request<T>) -> Viewer {
    match auth::identity(request) {
        Ok(identity) if identity.roles.contains(Role::Service) => Viewer::Mesh,
        Ok(identity) if identity.roles.contains(Role::Organizer) => {
            Viewer::Organizer(identity.organizer_id())
        }
        Ok(_) | Err(_) => Viewer::Anyone,
    }
}
