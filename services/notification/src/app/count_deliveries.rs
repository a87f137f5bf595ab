//! Job "watch deliveries": workers → app → store::deliveries → metrics.

use super::App;
use crate::{error::Error, metrics, store};

impl App {
    /// Sets the gauges of dead letters, open deliveries and waiting orders.
    pub(crate) async fn count_deliveries(&self) -> Result<(), Error> {
        let counts = store::deliveries::counts(&self.stores.postgres).await?;
        metrics::set_counts(counts.dead, counts.open, counts.waiting_orders);
        Ok(())
    }
}
