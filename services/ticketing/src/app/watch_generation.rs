//! `WatchGeneration`: grpc → app::get_generation → app → store::generations, every `generation.watch_every`.

use std::sync::Arc;

use futures_util::{Stream, stream};

use super::App;
use crate::{domain::generation::Generation, error::Error};

/// State of one open stream. It polls, because a generation takes seconds and has few watchers.
struct Watcher {
    app: Arc<App>,
    /// `None` before the first message.
    last_sent: Option<Generation>,
    /// Version with which the stream begins. `None` once it is sent.
    first: Option<Generation>,
}

impl App {
    /// Streams a generation: first the given version, then each change. The stream ends after COMPLETED or FAILED. The caller
    /// must have checked the organizer's access.
    pub(crate) fn watch_generation(
        self: &Arc<Self>,
        first: Generation,
    ) -> impl Stream<Item = Result<Generation, Error>> + Send + use<> {
        let watcher = Watcher { app: Arc::clone(self), last_sent: None, first: Some(first) };
        stream::try_unfold(watcher, async |mut watcher| {
            let Some(next) = watcher.next_change().await? else { return Ok(None) };
            Ok(Some((next, watcher)))
        })
    }
}

impl Watcher {
    /// Waits for a version that differs from the last one sent. Returns `None` if the last one was final.
    async fn next_change(&mut self) -> Result<Option<Generation>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(self.record_sent(first)));
        }
        loop {
            let Some(last) = self.last_sent.as_ref().filter(|last| !last.is_over()) else { return Ok(None) };
            tokio::time::sleep(self.app.generation.watch_every).await;
            let current = self.app.read_generation(last.generation_id).await?;
            if current != *last {
                return Ok(Some(self.record_sent(current)));
            }
        }
    }

    fn record_sent(&mut self, generation: Generation) -> Generation {
        self.last_sent.insert(generation).clone()
    }
}
