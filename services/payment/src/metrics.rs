//! Metrics of Payment. Every label has few values: providers, states, steps, calls and outcomes.

use std::time::Instant;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

/// Registers the help text of each metric.
pub(crate) fn describe() {
    describe_counter!("payment_states_total", "Payments that entered a state, by provider and state.");
    describe_counter!("payment_webhooks_total", "Webhooks by provider and outcome.");
    describe_counter!("payment_step_failures_total", "Failed attempts at a payment step, by step.");
    describe_counter!(
        "payment_provider_calls_total",
        "Calls to payment providers, by provider, call and outcome."
    );
    describe_histogram!(
        "payment_provider_call_seconds",
        Unit::Seconds,
        "Duration of calls to payment providers, by provider and call."
    );
}

pub(crate) fn entered_state(provider: &'static str, state: &'static str) {
    counter!("payment_states_total", "provider" => provider, "state" => state).increment(1);
}

/// Counts a webhook. The outcome is `taken`, `duplicate`, `failed` or `not believed` (rejected).
pub(crate) fn webhook(provider: &'static str, outcome: &'static str) {
    counter!("payment_webhooks_total", "provider" => provider, "outcome" => outcome).increment(1);
}

pub(crate) fn step_failed(step: &'static str) {
    counter!("payment_step_failures_total", "step" => step).increment(1);
}

/// Measures one call to a provider.
pub(crate) struct ProviderCall {
    provider: &'static str,
    call: &'static str,
    start: Instant,
}

impl ProviderCall {
    pub(crate) fn start(provider: &'static str, call: &'static str) -> Self {
        Self { provider, call, start: Instant::now() }
    }

    /// Records the end of the call. The outcome is `ok` or that of a provider error.
    pub(crate) fn end(self, outcome: &'static str) {
        let (provider, call) = (self.provider, self.call);
        counter!("payment_provider_calls_total", "provider" => provider, "call" => call, "outcome" => outcome)
            .increment(1);
        histogram!("payment_provider_call_seconds", "provider" => provider, "call" => call)
            .record(self.start.elapsed());
    }
}
