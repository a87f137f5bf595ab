//! Background work: two periodic jobs and the consumers of other services' events. Every process runs all of it, because row locks
//! keep the processes apart.

mod consumers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis, worker::Worker};

use crate::{app::App, config::Config};

/// Starts the jobs and the consumers.
pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    let tasks = chassis.tasks();

    let shared = Arc::clone(app);
    Worker::every("expire claims", config.claims.expire_every).start(tasks, move || {
        let app = Arc::clone(&shared);
        async move { app.expire_claims().await }
    });

    let shared = Arc::clone(app);
    Worker::every("release holds", config.holds.release_every)
        .notified_by(Arc::clone(&app.release_hint))
        .start(tasks, move || {
            let app = Arc::clone(&shared);
            async move { app.reconcile_holds().await }
        });

    consumers::start(app, config, tasks)
}
