//! Background tasks: the consumers of other services' events, the delivery worker, and a worker that updates the gauges.

mod consumers;
mod delivery;

use std::{sync::Arc, time::Duration};

use onsale_kit::{BuildError, server::Chassis, worker::Worker};

use crate::{app::App, config::Config};

const COUNT_EVERY: Duration = Duration::from_secs(15);

/// Starts all consumers and workers as tasks of the chassis.
pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    consumers::start(app, chassis.tasks())?;
    delivery::start(app, &config.delivery, chassis.tasks());
    let app = Arc::clone(app);
    Worker::every("watch deliveries", COUNT_EVERY).start(chassis.tasks(), move || {
        let app = Arc::clone(&app);
        async move { app.count_deliveries().await }
    });
    Ok(())
}
