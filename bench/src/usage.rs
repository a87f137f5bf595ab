//! Processor time of a measurement by process: pods, stores and the benchmark itself.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use crate::{kernel, pod::Pod, report::share};

/// Processor time by name of the process.
#[derive(Clone, Debug)]
pub(crate) struct Usage(BTreeMap<&'static str, Duration>);

impl Usage {
    /// Reads the processor time of pods, stores and this process since their start.
    pub(crate) fn of(pods: &[&Pod]) -> anyhow::Result<Self> {
        let mut usage = BTreeMap::from([
            ("postgres", kernel::processor_time_below("postgres")?),
            ("redis", kernel::processor_time_below("redis-server")?),
            ("client", kernel::processor_time(std::process::id())?),
        ]);
        for pod in pods {
            usage.insert(pod.name, pod.processor_time()?);
        }
        Ok(Self(usage))
    }

    /// Returns the processor time since an earlier reading.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let taken = |(name, now): (&&'static str, &Duration)| {
            (*name, now.saturating_sub(before.0.get(name).copied().unwrap_or_default()))
        };
        Self(self.0.iter().map(taken).collect())
    }

    /// Returns the seconds per thousand calls.
    pub(crate) fn per_thousand(&self, calls: u64) -> Value {
        // Microseconds per call equal milliseconds per thousand calls; a thousandth of those are seconds.
        let calls = calls.max(1).saturating_mul(1_000);
        let seconds = |(name, time): (&&'static str, &Duration)| {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            ((*name).to_owned(), json!(share(micros, calls)))
        };
        Value::Object(self.0.iter().map(seconds).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_since_is_in_seconds_per_thousand_calls() {
        let before = Usage(BTreeMap::from([("pod", Duration::from_secs(1))]));
        let after = Usage(BTreeMap::from([("pod", Duration::from_secs(3)), ("new", Duration::from_secs(1))]));
        assert_eq!(after.since(&before).per_thousand(4_000), json!({ "pod": 0.5, "new": 0.25 }));
    }
}
