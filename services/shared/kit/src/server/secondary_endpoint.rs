//! Second way into the server: calls that reach the process elsewhere than on its gRPC port, such as gRPC-Web, pass through
//! the same pipeline with the same checks and limits.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use http::{Request, Response};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::{Status, body::Body};

use super::{call_pipeline::CallPipeline, refusal::Refusal};
use crate::server::RequestBody;

/// Serves calls exactly as the gRPC port does. Clones share one state.
#[derive(Clone, Default)]
pub struct SecondaryEndpoint {
    /// Empty until the server has started; calls are refused as DRAINING until then.
    pipeline: Arc<OnceLock<Arc<CallPipeline>>>,
    /// Cancelled when the drain begins: no new calls, and streams end.
    drain: CancellationToken,
}

impl SecondaryEndpoint {
    /// Serves one gRPC call. Refusals are statuses in the response, so this never fails.
    pub async fn call(&self, request: Request<Body>) -> Response<Body> {
        let Some(pipeline) = self.pipeline.get() else {
            return Status::from(Refusal::Draining { retry_after: std::time::Duration::from_secs(1) })
                .into_http();
        };
        let request = request.map(RequestBody::from);
        Arc::clone(pipeline).call(request, self.drain.clone()).await.map(Body::new)
    }

    /// Completes when the drain begins; listeners that feed this endpoint then stop accepting.
    pub fn draining(&self) -> WaitForCancellationFutureOwned {
        self.drain.clone().cancelled_owned()
    }

    /// The drain token, which the gRPC port shares.
    pub(super) fn drain(&self) -> CancellationToken {
        self.drain.clone()
    }

    pub(super) fn open(&self, pipeline: &Arc<CallPipeline>) {
        // Cannot fail: the chassis that owns this starts only once.
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
