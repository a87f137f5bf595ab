//! What a benchmark prints: ours, the limit measured beside it in the same run, and their ratio.

use std::time::Duration;

use serde::Serialize;

/// One benchmark's result, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The benchmark's name.
    pub(crate) bench: &'static str,
    /// Ours: the median of the rounds.
    pub(crate) value: f64,
    /// What `value` and `limit` are counted in.
    pub(crate) unit: &'static str,
    /// The limit: the median of its rounds.
    pub(crate) limit: f64,
    /// What was measured as the limit.
    pub(crate) limit_is: &'static str,
    /// `value / limit`: the median of the rounds' ratios, each taken of two neighbors in time.
    pub(crate) ratio: f64,
    /// How far the rounds' ratios lie apart: (largest − smallest) / median.
    pub(crate) spread: f64,
    /// More numbers of the same run.
    pub(crate) detail: serde_json::Value,
}

/// One round: ours and the limit, measured right after each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    /// Ours.
    pub(crate) value: f64,
    /// The limit.
    pub(crate) limit: f64,
}

impl Report {
    /// Takes the medians of `rounds`.
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

    /// The report for a person.
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

/// Digits behind the point that mean something in a number of this size.
fn digits(value: f64) -> usize {
    if value < 1_000.0 { 2 } else { 0 }
}

/// The middle value; the upper one of two. Zero of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// How often something happened per second.
#[expect(clippy::float_arithmetic, clippy::as_conversions, reason = "a rate is measured, not counted")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// One number per another.
#[expect(clippy::float_arithmetic, clippy::as_conversions, reason = "a share is measured, not counted")]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// One measured number per another.
#[expect(clippy::float_arithmetic, reason = "a ratio is measured, not counted")]
pub(crate) fn ratio(value: f64, of: f64) -> f64 {
    value / of
}

/// A span in milliseconds.
#[expect(clippy::float_arithmetic, reason = "a time is measured, not counted")]
pub(crate) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_takes_medians_and_the_ratio_of_neighbors() {
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
