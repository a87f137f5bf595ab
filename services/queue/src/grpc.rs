//! The gRPC face of Queue: who, what, do, answer. No rule of its own. What is not written here answers UNIMPLEMENTED, from
//! the generated default (ADR 0003).

mod admin;
mod customers;
mod internal;

use std::sync::Arc;

use crate::app::{App, join_queue::JoinBatcher};

/// Serves the contracts of Queue.
#[derive(Debug)]
pub(crate) struct Grpc {
    app: Arc<App>,
    joins: JoinBatcher,
}

impl Grpc {
    /// Serves with `app`; joins go through `joins`.
    pub(crate) fn new(app: Arc<App>, joins: JoinBatcher) -> Self {
        Self { app, joins }
    }
}
