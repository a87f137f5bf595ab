//! `WatchQueueStats`: grpc → app (one read per interval, see `get_queue_stats`).

use std::{sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, future, stream};
use onsale_types::{EventId, OrganizerId};
use tokio::time::sleep;

use super::App;
use crate::{domain::stats::QueueStats, error::Error};

impl App {
    /// Streams the live numbers: the first immediately, the next after `interval`. Nothing is buffered for a slow reader.
    pub(crate) async fn watch_queue_stats(
        self: &Arc<Self>,
        organizer_id: OrganizerId,
        event_id: EventId,
        interval: Duration,
    ) -> Result<impl Stream<Item = Result<Arc<QueueStats>, Error>> + Send + use<>, Error> {
        let first = self.get_queue_stats(organizer_id, event_id).await?;
        let next = stream::try_unfold(Arc::clone(self), move |app| async move {
            sleep(interval).await;
            let stats = app.get_queue_stats(organizer_id, event_id).await?;
            Ok(Some((stats, app)))
        });
        Ok(stream::once(future::ready(Ok(first))).chain(next))
    }
}
