//! The gRPC face of Inventory: who, what, do, answer. No rule of its own.

mod event_service;
mod internal_service;
mod inventory_service;

use std::sync::Arc;

use onsale_kit::auth;
use onsale_proto::{auth::v1::Role, inventory::v1::quota_service_server::QuotaService};
use tonic::Request;

use crate::{app::App, domain::event::Viewer};

/// Serves the contracts of Inventory.
pub struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    /// In front of `app`.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

/// Quotas are not served yet: each method answers UNIMPLEMENTED, from the generated default (ADR 0003).
#[tonic::async_trait]
impl QuotaService for Grpc {}

/// Who looks at an event; methods that show events are open to anyone.
fn viewer<T>(request: &Request<T>) -> Viewer {
    match auth::identity(request) {
        Ok(identity) if identity.roles.contains(Role::Service) => Viewer::Mesh,
        Ok(identity) if identity.roles.contains(Role::Organizer) => {
            Viewer::Organizer(identity.organizer_id())
        }
        Ok(_) | Err(_) => Viewer::Anyone,
    }
}
