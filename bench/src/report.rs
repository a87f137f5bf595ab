//! Report of a benchmark: our value, the limit measured in the same run, and their ratio.

use std::time::Duration;

use serde::Serialize;

/// Result of one benchmark, in the form that `--json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Name of the benchmark.
    pub(crate) bench: &'static str,
    /// Median of our values of the rounds.
    pub(crate) value: f64,
    /// Unit of `value` and `limit`.
    pub(crate) unit: &'static str,
    /// Median of the limits of the rounds.
    pub(crate) limit: f64,
    /// Description of the limit.
    pub(crate) limit_is: &'static str,
    /// Median of `value / limit` of the rounds, each of two measurements right after each other.
    pub(crate) ratio: f64,
    /// Spread of the ratios: (largest − smallest) / median.
    pub(crate) spread: f64,
    /// Further figures of the same run.
    pub(crate) detail: serde_json::Value,
}

/// One round: our value and the limit, measured right after each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) value: f64,
    pub(crate) limit: f64,
}

impl Report {
    /// Returns the report with the medians of `rounds`.
    #[expect(clippy::float_arithmetic, reason = "rates and ratios are measured, not counted")]
    pub(crate) fn new(
        bench: &'static str,
        unit: &'static str,
        limit_is: &'static str,
        rounds: &[Round],
        detail: serde_json::Value,
    ) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(|round| round.value / round.limit).collect();
        let ratio = median(&ratios);
        let largest = ratios.iter().copied().fold(f64::MIN, f64::max);
        let smallest = ratios.iter().copied().fold(f64::MAX, f64::min);
        Self {
            bench,
            value: median(&rounds.iter().map(|round| round.value).collect::<Vec<_>>()),
            unit,
            limit: median(&rounds.iter().map(|round| round.limit).collect::<Vec<_>>()),
            limit_is,
            ratio,
            spread: (largest - smallest) / ratio,
            detail,
        }
    }

    /// Formats the report for people.
    pub(crate) fn to_text(&self) -> String {
        format!(
            "{}: {:.*} {} (limit: {:.*}, {}); ratio {:.3}, spread {:.3}\n{}",
            self.bench,
            digits(self.value),
            self.value,
            self.unit,
            digits(self.limit),
            self.limit,
            self.limit_is,
            self.ratio,
            self.spread,
            serde_json::to_string_pretty(&self.detail).unwrap_or_default()
        )
    }
}

/// Returns the number of decimals worth printing for a value of this size.
fn digits(value: f64) -> usize {
    if value < 1_000.0 { 2 } else { 0 }
}

/// Returns the median: the upper one of two middle values, zero if there are none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Returns a rate per second.
#[expect(clippy::float_arithmetic, clippy::as_conversions, reason = "a rate is measured, not counted")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// Returns the quotient of two counts.
#[expect(clippy::float_arithmetic, clippy::as_conversions, reason = "a share is measured, not counted")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Returns the quotient of two measured values.
#[expect(clippy::float_arithmetic, reason = "a ratio is measured, not counted")]
pub(crate) fn ratio(value: f64, of: f64) -> f64 {
    value / of
}

/// Converts a duration to milliseconds.
#[expect(clippy::float_arithmetic, reason = "a time is measured, not counted")]
pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_the_medians_of_values_limits_and_ratios() {
        let rounds = [
            Round { value: 80.0, limit: 100.0 },
            Round { value: 30.0, limit: 50.0 },
            Round { value: 90.0, limit: 100.0 },
        ];
        let report = Report::new("x", "calls/s", "bare", &rounds, serde_json::Value::Null);
        assert_eq!((report.value, report.limit, report.ratio), (80.0, 100.0, 0.8));
        assert!((report.spread - 0.375).abs() < 1e-9);
    }
}
