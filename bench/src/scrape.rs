//! Reads the Prometheus metrics of a process.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use anyhow::Context;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Response of one request to `/metrics`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(String);

impl Metrics {
    /// Fetches the metrics of the process whose admin port is `admin`.
    pub(crate) async fn of(http: &reqwest::Client, admin: SocketAddr) -> anyhow::Result<Self> {
        let url = format!("http://{admin}/metrics");
        let response =
            http.get(&url).timeout(TIMEOUT).send().await.with_context(|| format!("failed to get {url}"))?;
        Ok(Self(response.text().await.with_context(|| format!("failed to read {url}"))?))
    }

    /// Returns the sum of all samples of this name with this label, such as `batcher="join"`; an empty label matches all. `None`
    /// if there is no such sample.
    pub(crate) fn sum(&self, name: &str, label: &str) -> Option<f64> {
        let values: Vec<f64> = self
            .0
            .lines()
            .filter_map(|line| {
                let rest = line.strip_prefix(name)?;
                let (labels, value) = match rest.strip_prefix('{') {
                    Some(rest) => rest.rsplit_once('}')?,
                    None => ("", rest.strip_prefix(' ')?),
                };
                labels.contains(label).then(|| value.trim().parse().ok())?
            })
            .collect();
        (!values.is_empty()).then(|| values.into_iter().sum())
    }

    /// Returns the average of a histogram or summary for each value of `label`.
    pub(crate) fn average(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let begin = format!("{label}=\"");
        let counts = self.beginning_with(&format!("{name}_count{{"));
        let labels = counts.keys().filter_map(|sample| sample.split_once(&begin)?.1.split_once('"'));
        let average = |value: &str| {
            let only = format!("{begin}{value}\"");
            let sum = self.sum(&format!("{name}_sum"), &only)?;
            Some((value.to_owned(), quotient(sum, self.sum(&format!("{name}_count"), &only)?)))
        };
        labels.filter_map(|(value, _)| average(value)).collect()
    }

    /// Returns every sample whose name begins with `name`, by its name and labels as in the response.
    pub(crate) fn beginning_with(&self, name: &str) -> BTreeMap<String, f64> {
        let samples = self.0.lines().filter(|line| line.starts_with(name)).filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            Some((sample.to_owned(), value.parse().ok()?))
        });
        samples.collect()
    }
}

#[expect(clippy::float_arithmetic, reason = "an average is measured, not counted")]
fn quotient(sum: f64, count: f64) -> f64 {
    sum / count.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_label() {
        let metrics = Metrics(
            "# TYPE size summary\nsize_sum{batcher=\"join\"} 12\nsize_sum{batcher=\"seen\"} 30\n\
             size_sum_other 7\nplain 2.5\nodd{text=\"a } b\"} 3\n"
                .to_owned(),
        );
        assert_eq!(metrics.sum("size_sum", ""), Some(42.0));
        assert_eq!(metrics.sum("size_sum", "batcher=\"join\""), Some(12.0));
        assert_eq!(metrics.sum("plain", ""), Some(2.5));
        assert_eq!(metrics.sum("odd", "text"), Some(3.0));
        assert_eq!(metrics.sum("size", ""), None);
        let counts = Metrics("n_sum{of=\"a\"} 12\nn_count{of=\"a\"} 4\nn_count{of=\"b\"} 1\n".to_owned());
        assert_eq!(counts.average("n", "of"), BTreeMap::from([("a".to_owned(), 3.0)]));
        let sizes = metrics.beginning_with("size_sum{");
        assert_eq!(sizes.len(), 2);
        assert_eq!(sizes["size_sum{batcher=\"seen\"}"], 30.0);
    }
}
