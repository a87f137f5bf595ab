//! The gRPC interface of Queue. Each handler identifies the caller, reads the request, runs the use case and builds the
//! response. Methods without a handler return UNIMPLEMENTED (ADR 0003).

mod admin;
mod customers;
mod internal;

use std::sync::Arc;

use crate::app::App;

/// Serves the contracts of Queue.
#[derive(Debug)]
pub(crate) struct Grpc {
    app: Arc<App>,
}

impl Grpc {
    pub(crate) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}
