//! Event consumers and background loops: generators make tickets, the issuer retries orders that were paid before their tickets
//! existed. A failed round is retried after up to 200 ms, doubling to 10 s, in addition to the interval.

mod consumers;

use std::sync::Arc;

use onsale_kit::{BuildError, server::Chassis, tasks::Tasks, worker::Worker};

use crate::{app::App, config::Config};

/// Starts all consumers and workers as tasks of the chassis.
pub(crate) fn start(app: &Arc<App>, config: &Config, chassis: &Chassis) -> Result<(), BuildError> {
    let tasks = chassis.tasks();
    consumers::start(app, tasks)?;
    for _ in 0..config.generation.workers.get() {
        start_generator(app, config, tasks);
    }
    start_issuer(app, config, tasks);
    Ok(())
}

/// Starts one generator. At shutdown it finishes its current batch, not its generation.
fn start_generator(app: &Arc<App>, config: &Config, tasks: &Tasks) {
    let (app, shutdown) = (Arc::clone(app), tasks.token());
    Worker::every("generator", config.generation.poll_every)
        .notified_by(Arc::clone(&app.generation_hint))
        .start(tasks, move || {
            let (app, shutdown) = (Arc::clone(&app), shutdown.clone());
            async move { app.generate_tickets(&shutdown).await }
        });
}

fn start_issuer(app: &Arc<App>, config: &Config, tasks: &Tasks) {
    let app = Arc::clone(app);
    Worker::every("issuer", config.issuing.poll_every).notified_by(Arc::clone(&app.issuing_hint)).start(
        tasks,
        move || {
            let app = Arc::clone(&app);
            async move { app.issue_pending_orders().await }
        },
    );
}
