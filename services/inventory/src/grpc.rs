//! The gRPC face of Inventory: who, what, do, answer. No rule of its own.

mod event_service;
mod internal_service;
mod inventory_service;
mod quota_service;

use std::sync::Arc;

use onsale_kit::{auth, tasks::Tasks};
use onsale_proto::auth::v1::Role;
use tonic::Request;

use crate::{
    app::{App, EndHoldBatcher, Reservations},
    domain::event::Viewer,
};

/// Serves the contracts of Inventory.
pub struct Grpc {
    app: Arc<App>,
    reservations: Reservations,
    endings: EndHoldBatcher,
}

impl Grpc {
    /// In front of `app`.
    #[must_use]
    pub fn new(app: Arc<App>, tasks: &Tasks) -> Self {
        Self { reservations: Reservations::new(&app, tasks), endings: EndHoldBatcher::new(&app, tasks), app }
    }
}

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
