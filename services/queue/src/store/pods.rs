//! Viewer reports in Redis: the pods tell each other how many customers view an event and how far each pod's replica of the
//! line lags. A report expires by the clock of Redis; without Redis a pod knows only its own numbers.

use std::{sync::LazyLock, time::Duration};

use onsale_storage::redis::{Error, Redis, Script};
use onsale_types::EventId;
use uuid::Uuid;

use super::{breaker::with_timeout, keys::Keys, millis};
use crate::domain::stats::ViewerReport;

/// Age after which a report no longer counts, because its pod is gone.
const REPORT_AGE_MAX: Duration = Duration::from_secs(20);

static REPORT: LazyLock<Script> = LazyLock::new(|| Script::new("queue_report", include_str!("report.lua")));
static OTHERS: LazyLock<Script> = LazyLock::new(|| Script::new("queue_others", include_str!("others.lua")));

/// The viewer reports of all pods.
#[derive(Clone, Debug)]
pub(crate) struct Pods {
    redis: Redis,
    keys: Keys,
    /// Name of this pod, new at every start, so that its reports are not confused with those of the process before.
    pod: String,
}

impl Pods {
    /// Returns the reports in `redis` under `keys`, with a new name for this pod.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys, pod: Uuid::new_v4().to_string() }
    }

    /// Writes this pod's report. An empty one deletes the last report.
    pub(crate) async fn report(&self, event_id: EventId, report: ViewerReport) -> Result<(), Error> {
        let call = REPORT
            .call()
            .key(&self.keys.pods(event_id)?)
            .arg(&self.pod)
            .arg(report.viewers)
            .arg(millis(report.lag))
            .arg(REPORT_AGE_MAX.as_secs());
        let _done: i64 = with_timeout(&self.redis, call.idempotent()).await?;
        Ok(())
    }

    /// Returns the reports of the other pods, combined.
    pub(crate) async fn others(&self, event_id: EventId) -> Result<ViewerReport, Error> {
        let call = OTHERS.call().key(&self.keys.pods(event_id)?).arg(&self.pod).arg(millis(REPORT_AGE_MAX));
        let (viewers, lag): (u64, u64) = with_timeout(&self.redis, call.idempotent()).await?;
        Ok(ViewerReport { viewers, lag: Duration::from_millis(lag) })
    }
}
