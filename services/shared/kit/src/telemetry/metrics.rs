//! The metrics recorder of the process. Each metric is declared in the module that counts it.

use std::sync::{Arc, OnceLock};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Bucket bounds of duration histograms in seconds, from a call without a store (0.1 ms) to the longest deadline (60 s).
const DURATION_BUCKETS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Bucket bounds of histograms of counts, whose names end in `_size`.
const SIZE_BUCKETS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// Returns the recorder of this process and installs it at the first call: a process can have only one, and tests start
/// many servers.
///
/// A caller that serves it must also call `run_upkeep` every few seconds, or histogram samples accumulate.
pub(crate) fn handle() -> Arc<PrometheusHandle> {
    static HANDLE: OnceLock<Arc<PrometheusHandle>> = OnceLock::new();
    Arc::clone(HANDLE.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        // Fails only for an empty list of buckets.
        let builder = builder.set_buckets(&DURATION_BUCKETS).unwrap_or_default();
        let sizes = Matcher::Suffix("_size".to_owned());
        let builder = builder.set_buckets_for_metric(sizes, &SIZE_BUCKETS).unwrap_or_default();
        let recorder = builder.build_recorder();
        let handle = Arc::new(recorder.handle());
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed, /metrics will be empty");
        }
        handle
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_have_separate_buckets() {
        let handle = handle();
        metrics::histogram!("metrics_test_size").record(200.0);
        metrics::histogram!("metrics_test_seconds").record(0.2);
        let page = handle.render();
        for line in ["metrics_test_size_bucket{le=\"256\"} 1", "metrics_test_seconds_bucket{le=\"0.25\"} 1"] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }
}
