//! Another way in: calls that reach the process elsewhere than on its gRPC port (as gRPC-Web, for one) go through the same
//! pipeline, with the same checks and limits.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use http::{Request, Response};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

use super::{call_pipeline::CallPipeline, refusal::Refusal};
use crate::server::RequestBody;

/// Answers calls as the gRPC port does. Clones are the same way in.
#[derive(Clone, Default)]
pub struct SecondaryEndpoint {
    /// Empty until the server has started.
    pipeline: Arc<OnceLock<Arc<CallPipeline>>>,
    /// Cancelled when no new calls are to be taken and streams are to end.
    drain: CancellationToken,
}

impl SecondaryEndpoint {
    /// Answers one call in gRPC's own form.
    pub async fn call(&self, request: Request<Body>) -> Response<Body> {
        let Some(pipeline) = self.pipeline.get() else {
            return Status::from(Refusal::Draining { retry_after: std::time::Duration::from_secs(1) })
                .into_http();
        };
        let request = request.map(RequestBody::from);
        Arc::clone(pipeline).call(request, self.drain.clone()).await.map(Body::new)
    }

    /// Done when the server takes no new calls any more: whoever listens for them stops then.
    pub fn draining(&self) -> WaitForCancellationFutureOwned {
        self.drain.clone().cancelled_owned()
    }

    /// What the gRPC port drains by.
    pub(super) fn drain(&self) -> CancellationToken {
        self.drain.clone()
    }

    pub(super) fn open(&self, pipeline: &Arc<CallPipeline>) {
        // Set once: the chassis that made this starts once.
        let _ = self.pipeline.set(Arc::clone(pipeline));
    }
}

impl fmt::Debug for SecondaryEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SecondaryEndpoint")
            .field("is_open", &self.pipeline.get().is_some())
            .finish_non_exhaustive()
    }
}
