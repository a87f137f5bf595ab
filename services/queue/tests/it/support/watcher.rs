//! The client end of an open stream.

use onsale_proto::queue::v1::{self as pb, queue_update::Update};
use tonic::{Status, Streaming};

use crate::support::SOON;

/// An open stream.
pub(crate) struct Watcher {
    stream: Streaming<pb::WatchQueueResponse>,
    pub(crate) revision: u64,
}

impl Watcher {
    pub(crate) fn new(stream: Streaming<pb::WatchQueueResponse>, last_revision: u64) -> Self {
        Self { stream, revision: last_revision }
    }

    /// Returns the next message or the error that ended the stream; `None` if it ended with OK. Waits for any time.
    pub(crate) async fn read(&mut self) -> Option<Result<Update, Status>> {
        let update = match self.stream.message().await {
            Ok(message) => message?.update?,
            Err(status) => return Some(Err(status)),
        };
        assert!(update.revision >= self.revision, "{} after {}", update.revision, self.revision);
        self.revision = update.revision;
        update.update.map(Ok)
    }

    /// Returns the next message within 20 s; `None` if the stream ended with OK.
    pub(crate) async fn next(&mut self) -> Option<Update> {
        let next = tokio::time::timeout(SOON, self.read());
        next.await.expect("a message comes in time").transpose().unwrap()
    }

    /// Returns the status with which the stream ends, skipping messages.
    pub(crate) async fn end(&mut self) -> Status {
        let end = async {
            loop {
                match self.read().await {
                    Some(Ok(_update)) => {}
                    Some(Err(status)) => return status,
                    None => panic!("the stream ended with OK"),
                }
            }
        };
        tokio::time::timeout(SOON, end).await.expect("the stream ends in time")
    }

    /// Reads until `wanted` returns a value.
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

    pub(crate) async fn until_position(&mut self, position: u64) {
        self.until(|update| match update {
            Update::PositionUpdate(update) => (update.position == position).then_some(()),
            _ => None,
        })
        .await;
    }
}
