//! What all scenarios share: the mesh, people, and events on sale.

pub(crate) mod fail_point;
pub(crate) mod mesh;
pub(crate) mod pod;
pub(crate) mod redis;
pub(crate) mod sale;

use std::time::Duration;

/// How long anything may take. Two cores run a dozen processes here; a healthy purchase takes a few seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
