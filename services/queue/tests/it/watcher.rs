//! A customer's end of an open stream.

use std::time::Duration;

use onsale_proto::queue::v1::{self as pb, queue_update::Update};
use tonic::Streaming;

use crate::world::SOON;

/// An open stream.
pub(crate) struct Watcher {
    stream: Streaming<pb::WatchQueueResponse>,
    pub(crate) revision: u64,
}

impl Watcher {
    pub(crate) fn new(stream: Streaming<pb::WatchQueueResponse>, last_revision: u64) -> Self {
        Self { stream, revision: last_revision }
    }

    /// The next message; none when the stream has ended with OK.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        let next = tokio::time::timeout(SOON, self.stream.message());
        let update = next.await.expect("a message comes in time").unwrap()?.update.unwrap();
        assert!(update.revision >= self.revision, "{} after {}", update.revision, self.revision);
        self.revision = update.revision;
        update.update
    }

    /// Reads until `wanted` finds what it wants.
    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(&Update) -> Option<T>) -> T {
        loop {
            let update = self.next().await.expect("the stream goes on");
            if let Some(found) = wanted(&update) {
                return found;
            }
        }
    }

    pub(crate) async fn until_turn(&mut self) -> pb::Turn {
        self.until(|update| match update {
            Update::TurnGranted(granted) => granted.turn.clone(),
            _ => None,
        })
        .await
    }

    /// Whether it is told this position before `patience` is over.
    pub(crate) async fn is_told(&mut self, position: u64, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.until_position(position)).await.is_ok()
    }

    pub(crate) async fn until_position(&mut self, position: u64) {
        self.until(|update| match update {
            Update::PositionUpdate(update) => (update.position == position).then_some(()),
            _ => None,
        })
        .await;
    }
}
