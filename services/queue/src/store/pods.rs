//! What the pods report to each other about an event, in Redis: how many look at it on each, and how far each one's view
//! of its queue is behind. A report grows old by Redis' clock; without Redis a pod knows only its own.

use std::{sync::LazyLock, time::Duration};

use onsale_storage::redis::{Error, Redis, Script};
use onsale_types::EventId;
use uuid::Uuid;

use super::{away::quick, keys::Keys, millis};

/// A pod that has not reported for this long is gone.
const REPORT_AGE_MAX: Duration = Duration::from_secs(20);

static REPORT: LazyLock<Script> = LazyLock::new(|| Script::new("queue_report", include_str!("report.lua")));
static OTHERS: LazyLock<Script> = LazyLock::new(|| Script::new("queue_others", include_str!("others.lua")));

/// What one pod, or several together, have of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewerReport {
    /// People who look at it.
    pub(crate) viewers: u64,
    /// How far the view of its queue is behind; of several pods, the slowest one's.
    pub(crate) lag: Duration,
}

impl ViewerReport {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { viewers: self.viewers.saturating_add(other.viewers), lag: self.lag.max(other.lag) }
    }
}

/// Where this pod reports, and reads what others did.
#[derive(Clone, Debug)]
pub(crate) struct Pods {
    redis: Redis,
    keys: Keys,
    /// Whose reports are this pod's: a new name with every start, so that nobody takes it for the one before.
    pod: String,
}

impl Pods {
    /// Reports in `redis` under `keys`, under a name of its own.
    pub(crate) fn new(redis: Redis, keys: Keys) -> Self {
        Self { redis, keys, pod: Uuid::new_v4().to_string() }
    }

    /// Reports this pod's share. An empty one takes the last report back.
    pub(crate) async fn report(&self, event_id: EventId, share: ViewerReport) -> Result<(), Error> {
        let call = REPORT
            .call()
            .key(&self.keys.pods(event_id)?)
            .arg(&self.pod)
            .arg(share.viewers)
            .arg(millis(share.lag))
            .arg(REPORT_AGE_MAX.as_secs());
        let _done: i64 = quick(&self.redis, call.idempotent()).await?;
        Ok(())
    }

    /// What the other pods reported lately, together.
    pub(crate) async fn others(&self, event_id: EventId) -> Result<ViewerReport, Error> {
        let call = OTHERS.call().key(&self.keys.pods(event_id)?).arg(&self.pod).arg(millis(REPORT_AGE_MAX));
        let (viewers, lag): (u64, u64) = quick(&self.redis, call.idempotent()).await?;
        Ok(ViewerReport { viewers, lag: Duration::from_millis(lag) })
    }
}
