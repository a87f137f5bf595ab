//! Facts about each method that channels need, and the counters of its calls.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use metrics::{Counter, Unit};
use tonic::Code;

use crate::{
    contract::{Contract, Method},
    server::metrics::code_name,
};

const REQUESTS: &str = "rpc_client_requests_total";
const RETRIES: &str = "rpc_client_retries_total";
const BUDGET_EXHAUSTED: &str = "rpc_client_retry_budget_exhausted_total";

/// gRPC codes are 0 to 16.
const CODES: usize = 17;

/// Describes the metrics of this file. Called once at start.
fn describe() {
    metrics::describe_counter!(REQUESTS, Unit::Count, "Calls to neighbors, by method and final gRPC code.");
    metrics::describe_counter!(RETRIES, Unit::Count, "Attempts beyond the first of a call.");
    metrics::describe_counter!(
        BUDGET_EXHAUSTED,
        Unit::Count,
        "Retries not made because the budget was used up."
    );
}

/// Methods of the contracts by path.
#[derive(Debug)]
pub(super) struct Methods {
    by_path: HashMap<String, Arc<MethodInfo>>,
    /// Used for every path outside of the contracts, so that the number of metrics stays bounded.
    unknown: Arc<MethodInfo>,
}

impl Methods {
    pub(super) fn new(contract: &Contract) -> Self {
        describe();
        let by_path =
            contract.methods().map(|method| (method.path.clone(), Arc::new(MethodInfo::new(method))));
        Self { by_path: by_path.collect(), unknown: Arc::new(MethodInfo::unknown()) }
    }

    pub(super) fn get(&self, path: &str) -> &Arc<MethodInfo> {
        self.by_path.get(path).unwrap_or(&self.unknown)
    }
}

/// Properties of a method, and its counters.
#[derive(Debug)]
pub(super) struct MethodInfo {
    service: Arc<str>,
    name: Arc<str>,
    pub(super) is_idempotent: bool,
    pub(super) is_server_streaming: bool,
    /// Set if the request is a single message, which can be kept and sent again.
    pub(super) is_request_single: bool,
    requests: [OnceLock<Counter>; CODES],
    retries: OnceLock<Counter>,
    budget_exhausted: OnceLock<Counter>,
}

impl MethodInfo {
    fn new(method: &Method) -> Self {
        Self {
            service: method.service.as_str().into(),
            name: method.name.as_str().into(),
            is_idempotent: method.idempotent,
            is_server_streaming: method.server_streaming,
            is_request_single: !method.client_streaming,
            ..Self::unknown()
        }
    }

    /// Properties of a method outside of the contracts: its request may be a stream, so it is neither kept nor retried.
    fn unknown() -> Self {
        Self {
            service: "unknown".into(),
            name: "unknown".into(),
            is_idempotent: false,
            is_server_streaming: false,
            is_request_single: false,
            requests: std::array::from_fn(|_| OnceLock::new()),
            retries: OnceLock::new(),
            budget_exhausted: OnceLock::new(),
        }
    }

    pub(super) fn count_retry(&self) {
        self.retries.get_or_init(|| self.counter(RETRIES)).increment(1);
    }

    pub(super) fn count_budget_exhausted(&self) {
        self.budget_exhausted.get_or_init(|| self.counter(BUDGET_EXHAUSTED)).increment(1);
    }

    fn count_request(&self, code: Code) {
        let slot = usize::try_from(i32::from(code)).ok().and_then(|index| self.requests.get(index));
        let counter = || {
            let (service, method) = (Arc::clone(&self.service), Arc::clone(&self.name));
            metrics::counter!(REQUESTS, "service" => service, "method" => method, "code" => code_name(code))
        };
        if let Some(slot) = slot {
            slot.get_or_init(counter).increment(1);
        }
    }

    fn counter(&self, name: &'static str) -> Counter {
        metrics::counter!(name, "service" => Arc::clone(&self.service), "method" => Arc::clone(&self.name))
    }
}

/// Counts one call once: with its final code, or as CANCELLED if it is dropped before.
#[derive(Debug)]
pub(super) struct CallCount {
    method: Option<Arc<MethodInfo>>,
}

impl CallCount {
    pub(super) fn new(method: Arc<MethodInfo>) -> Self {
        Self { method: Some(method) }
    }

    /// Counts the call with `code`. Later calls have no effect.
    pub(super) fn end(&mut self, code: Code) {
        if let Some(method) = self.method.take() {
            method.count_request(code);
        }
    }
}

impl Drop for CallCount {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}
