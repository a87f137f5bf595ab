//! Helpers shared by all scenarios: the mesh, customers and organizers, events on sale, and faults.

pub(crate) mod fail_point;
pub(crate) mod mesh;
pub(crate) mod pod;
pub(crate) mod redis;
pub(crate) mod sale;

use std::time::Duration;

/// Timeout of a single step. A healthy purchase takes a few seconds on two cores that run a dozen processes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
