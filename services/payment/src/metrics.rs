//! What Payment counts. Labels are bounded: providers, states, steps and outcomes are.

use std::time::Instant;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::{
    clients::ProviderError,
    domain::{Payment, Step},
};

/// Says what each metric means.
pub fn describe() {
    describe_counter!("payment_states_total", "payments that came into a state, by provider and state");
    describe_counter!("payment_webhooks_total", "webhooks by provider and outcome");
    describe_counter!(
        "payment_step_failures_total",
        "steps of payments that failed and are tried again, by step"
    );
    describe_counter!("payment_provider_calls_total", "calls to providers by provider, call and outcome");
    describe_histogram!(
        "payment_provider_call_seconds",
        Unit::Seconds,
        "how long calls to providers took, by provider and call"
    );
}

/// A payment came into its state.
pub fn entered_state(payment: &Payment) {
    let (provider, state) = (payment.provider.name(), payment.state.name());
    counter!("payment_states_total", "provider" => provider, "state" => state).increment(1);
}

/// A webhook was taken, known already, or not believed.
pub fn webhook(provider: &'static str, outcome: &'static str) {
    counter!("payment_webhooks_total", "provider" => provider, "outcome" => outcome).increment(1);
}

/// A step failed.
pub fn step_failed(step: Step) {
    counter!("payment_step_failures_total", "step" => step.name()).increment(1);
}

/// A call to a provider that is under way.
pub struct ProviderCall {
    provider: &'static str,
    call: &'static str,
    begin: Instant,
}

impl ProviderCall {
    /// It begins.
    #[must_use]
    pub fn begin(provider: &'static str, call: &'static str) -> Self {
        Self { provider, call, begin: Instant::now() }
    }

    /// It ended, maybe with an error.
    pub fn end(self, error: Option<&ProviderError>) {
        let outcome = error.map_or("ok", ProviderError::outcome);
        let (provider, call) = (self.provider, self.call);
        counter!("payment_provider_calls_total", "provider" => provider, "call" => call, "outcome" => outcome)
            .increment(1);
        histogram!("payment_provider_call_seconds", "provider" => provider, "call" => call)
            .record(self.begin.elapsed());
    }
}
