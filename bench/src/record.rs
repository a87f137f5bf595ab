//! Updates that very many streams received, with their times: 16 bytes per stream, written without locks.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
};

use anyhow::Context;
use bytes::Bytes;
use onsale_proto::queue::v1::{WatchQueueResponse, queue_update::Update};
use onsale_types::{Clock as _, SystemClock};
use prost::Message as _;

/// Stands for the position of a customer with a turn.
const TURN: u64 = u64::MAX;

/// Messages received by all streams of one side.
#[derive(Debug)]
pub(crate) struct Record {
    streams: Vec<StreamRecord>,
    /// Number of streams that received their first message.
    opened: AtomicUsize,
    /// Number of streams whose position changed in this round.
    arrived: AtomicUsize,
    messages: AtomicU64,
    /// Number of attempts to open a stream that the server refused as busy.
    refused: AtomicU64,
    /// The first message of the stream in the middle.
    sample: OnceLock<Bytes>,
}

/// Last position of one stream, and the time of its change.
#[derive(Debug, Default)]
struct StreamRecord {
    /// Last position received, or [`TURN`]; 0: none yet.
    position: AtomicU64,
    /// Time of the first new position in this round, in microseconds of the machine's clock; 0: none yet.
    time_micros: AtomicI64,
}

impl Record {
    pub(crate) fn new(streams: usize) -> Self {
        Self {
            streams: std::iter::repeat_with(StreamRecord::default).take(streams).collect(),
            opened: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            messages: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            sample: OnceLock::new(),
        }
    }

    /// Returns the number of streams.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of streams that received their first message.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Acquire)
    }

    /// Returns the number of streams whose position changed in this round.
    pub(crate) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::Acquire)
    }

    /// Returns the number of messages of any kind so far.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Returns the number of attempts to open a stream that the server refused as busy.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts an attempt to open a stream that the server refused as busy.
    pub(crate) fn record_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the first message of the stream in the middle as a typical one.
    pub(crate) fn sample(&self) -> Option<Bytes> {
        self.sample.get().cloned()
    }

    /// Begins a round and forgets the times of the last one.
    pub(crate) fn begin(&self) {
        for stream in &self.streams {
            stream.time_micros.store(0, Ordering::Relaxed);
        }
        self.arrived.store(0, Ordering::Release);
    }

    /// Returns the times at which positions changed in this round, in order.
    pub(crate) fn times_micros(&self) -> Vec<i64> {
        let times = self.streams.iter().map(|stream| stream.time_micros.load(Ordering::Relaxed));
        let mut times: Vec<i64> = times.filter(|micros| *micros > 0).collect();
        times.sort_unstable();
        times
    }

    /// Records a message of the stream with this number.
    pub(crate) fn record_message(&self, number: usize, message: &Bytes) -> anyhow::Result<()> {
        let stream = self.streams.get(number).context("there is no such stream")?;
        self.messages.fetch_add(1, Ordering::Relaxed);
        let response = WatchQueueResponse::decode(message.as_ref()).context("a message cannot be read")?;
        let position = match response.update.and_then(|update| update.update) {
            Some(Update::PositionUpdate(update)) => update.position,
            Some(Update::TurnGranted(_)) => TURN,
            // Other updates have no position.
            _ => return Ok(()),
        };
        let before = stream.position.swap(position, Ordering::Relaxed);
        if before == 0 {
            if number == self.streams.len() / 2 {
                // A copy, because the message keeps the whole buffer alive in which it arrived.
                let _ = self.sample.set(Bytes::copy_from_slice(message));
            }
            self.opened.fetch_add(1, Ordering::Release);
        } else if before != position {
            let now = SystemClock.now().as_micros();
            if stream.time_micros.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.arrived.fetch_add(1, Ordering::Release);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use onsale_proto::queue::v1::{PositionUpdate, QueueMoved, QueueUpdate, TurnGranted};

    use super::*;

    fn message(update: Update) -> Bytes {
        let update = QueueUpdate { revision: 1, update: Some(update) };
        WatchQueueResponse { update: Some(update) }.encode_to_vec().into()
    }

    fn at(position: u64) -> Bytes {
        message(Update::PositionUpdate(PositionUpdate { position, ..PositionUpdate::default() }))
    }

    #[test]
    fn only_the_first_new_position_of_a_round_counts() {
        let record = Record::new(2);
        record.record_message(0, &at(9)).unwrap();
        record.record_message(1, &at(10)).unwrap();
        assert_eq!((record.opened(), record.arrived()), (2, 0));
        assert_eq!(record.sample(), Some(at(10)));
        record.begin();
        record.record_message(0, &at(9)).unwrap();
        record.record_message(0, &message(Update::QueueMoved(QueueMoved::default()))).unwrap();
        assert_eq!(record.arrived(), 0);
        record.record_message(0, &message(Update::TurnGranted(TurnGranted::default()))).unwrap();
        record.record_message(1, &at(8)).unwrap();
        record.record_message(1, &at(7)).unwrap();
        assert_eq!((record.arrived(), record.times_micros().len()), (2, 2));
        record.begin();
        assert_eq!((record.arrived(), record.times_micros().len()), (0, 0));
        assert!(record.record_message(2, &at(1)).is_err());
    }
}
