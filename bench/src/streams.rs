//! Client of very many `WatchQueue` streams, which records the time of each stream's update. It uses HTTP/2 directly, with one
//! task per connection and one small future per stream; a tonic client per stream would need as much memory as the server.

use std::{net::SocketAddr, ops::Range, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use h2::{
    RecvStream,
    client::{ResponseFuture, SendRequest},
};
use onsale_proto::queue::v1::WatchQueueRequest;
use prost::Message as _;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};

use crate::record::Record;

/// Streams being opened at the same time, over all connections.
const OPENING_MAX: usize = 1_024;
/// Connections being opened at the same time: the length of a listener's backlog.
const CONNECTING_MAX: usize = 128;
/// Flow-control window of a connection, so large that the server never waits for a reader that keeps up.
const CONNECTION_WINDOW: u32 = 1 << 30;
/// RESOURCE_EXHAUSTED and UNAVAILABLE: the call is retried, first after [`RETRY_AFTER`].
const BUSY: [&str; 2] = ["8", "14"];
const ATTEMPTS_MAX: u32 = 20;
const RETRY_AFTER: Duration = Duration::from_millis(200);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const METHOD: &str = "/onsale.queue.v1.QueueService/WatchQueue";

/// Returns the `authorization` header of the stream with this number, from 0.
pub(crate) type Authorize = Arc<dyn Fn(usize) -> String + Send + Sync>;

#[derive(Clone)]
pub(crate) struct StreamOptions {
    pub(crate) address: SocketAddr,
    pub(crate) event_id: String,
    pub(crate) streams: usize,
    pub(crate) connections: usize,
    pub(crate) authorize: Authorize,
}

/// Open streams, which close when this handle is dropped.
pub(crate) struct Streams {
    pub(crate) record: Arc<Record>,
    connections: JoinSet<anyhow::Result<()>>,
}

impl Streams {
    /// Opens all streams and waits until each has received its first message.
    pub(crate) async fn open(options: &StreamOptions, timeout: Duration) -> anyhow::Result<Self> {
        let record = Arc::new(Record::new(options.streams));
        let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
        let opening_max = (OPENING_MAX / options.connections.max(1)).max(1);
        let mut connections = JoinSet::new();
        let shared = Arc::new(options.clone());
        for numbers in shares(options.streams, options.connections) {
            let (options, record) = (Arc::clone(&shared), Arc::clone(&record));
            let opening = Arc::new(Semaphore::new(opening_max));
            connections.spawn(hold(options, numbers, record, Arc::clone(&connecting), opening));
        }
        let mut streams = Self { record, connections };
        let opened = Arc::clone(&streams.record);
        streams
            .until(timeout, || opened.opened() >= opened.len())
            .await
            .with_context(|| format!("opened {} of {} streams", opened.opened(), opened.len()))?;
        Ok(streams)
    }

    /// Waits for a condition. Fails as soon as a connection fails.
    pub(crate) async fn until(
        &mut self,
        timeout: Duration,
        condition: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let wait = async {
            while !condition() {
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    Some(ended) = self.connections.join_next() => {
                        return ended.context("the task of a connection panicked")?.context("a connection failed");
                    }
                }
            }
            Ok(())
        };
        tokio::time::timeout(timeout, wait)
            .await
            .unwrap_or_else(|_| bail!("timed out after {} s", timeout.as_secs()))
    }

    /// Closes all streams and waits for their tasks.
    pub(crate) async fn close(mut self) {
        self.connections.shutdown().await;
    }
}

/// Distributes the numbers of streams evenly over connections.
fn shares(streams: usize, connections: usize) -> impl Iterator<Item = Range<usize>> {
    let connections = connections.clamp(1, streams.max(1));
    let border = move |index: usize| streams.saturating_mul(index) / connections;
    (0..connections).map(move |index| border(index)..border(index + 1))
}

/// Runs one connection and its streams. Returns only with an error.
async fn hold(
    options: Arc<StreamOptions>,
    mut numbers: Range<usize>,
    record: Arc<Record>,
    connecting: Arc<Semaphore>,
    opening: Arc<Semaphore>,
) -> anyhow::Result<()> {
    let permit = connecting.acquire().await.context("the connection limit is closed")?;
    let tcp = TcpStream::connect(options.address).await.context("failed to connect")?;
    tcp.set_nodelay(true).context("failed to set TCP_NODELAY")?;
    let (sender, mut connection) = h2::client::Builder::new()
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Bytes>(tcp)
        .await
        .context("the HTTP/2 handshake failed")?;
    let message =
        framed(&WatchQueueRequest { event_id: options.event_id.clone(), ..WatchQueueRequest::default() });
    let mut permit = Some(permit);
    let mut followed = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                ended.context("the connection broke")?;
                bail!("the server closed the connection");
            }
            Some(ended) = followed.next() => {
                let ended: anyhow::Result<()> = ended;
                return ended;
            }
            turn = Arc::clone(&opening).acquire_owned(), if !numbers.is_empty() => {
                let turn = turn.context("the stream limit is closed")?;
                if let Some(number) = numbers.next() {
                    let caller = Caller {
                        sender: sender.clone(),
                        options: Arc::clone(&options),
                        message: message.clone(),
                        number,
                        record: Arc::clone(&record),
                    };
                    // The opening is boxed and dropped once the stream is open, so that the remaining future is small.
                    followed.push(follow(Box::pin(caller.open()), number, Arc::clone(&record), turn));
                }
                permit.take();
            }
        }
    }
}

/// The call that opens one stream.
struct Caller {
    sender: SendRequest<Bytes>,
    options: Arc<StreamOptions>,
    message: Bytes,
    number: usize,
    record: Arc<Record>,
}

impl Caller {
    /// Opens the stream. Retries up to 20 times while the server is busy.
    async fn open(self) -> anyhow::Result<RecvStream> {
        for attempt in 1..=ATTEMPTS_MAX {
            let response = self.call().await?.await.context("the call failed")?;
            let Some(status) = response.headers().get("grpc-status") else {
                return Ok(response.into_body());
            };
            let is_busy = BUSY.iter().any(|busy| status == busy);
            if !is_busy || attempt == ATTEMPTS_MAX {
                let message = response.headers().get("grpc-message");
                bail!("stream {} was refused {attempt} times: {status:?} {message:?}", self.number);
            }
            self.record.record_refusal();
            tokio::time::sleep(RETRY_AFTER.saturating_mul(attempt)).await;
        }
        bail!("stream {} was not opened", self.number)
    }

    async fn call(&self) -> anyhow::Result<ResponseFuture> {
        let request = request(&self.options, self.number)?;
        // Waits while the connection has as many streams as the server allows.
        let mut sender = self.sender.clone().ready().await.context("the connection refuses calls")?;
        let (response, mut body) =
            sender.send_request(request, false).context("failed to send the request")?;
        body.send_data(self.message.clone(), true).context("failed to send the request")?;
        Ok(response)
    }
}

/// Records the messages of one stream. Returns only with an error, because a stream should not end.
async fn follow(
    open: Pin<Box<impl Future<Output = anyhow::Result<RecvStream>>>>,
    number: usize,
    record: Arc<Record>,
    turn: OwnedSemaphorePermit,
) -> anyhow::Result<()> {
    let mut body = open.await?;
    let mut turn = Some(turn);
    let mut frames = Frames::default();
    while let Some(piece) = body.data().await {
        let piece = piece.context("a stream broke")?;
        body.flow_control().release_capacity(piece.len()).context("a stream broke")?;
        frames.push(piece);
        while let Some(message) = frames.next() {
            record.record_message(number, &message)?;
            turn.take();
        }
    }
    let trailers = body.trailers().await.ok().flatten().unwrap_or_default();
    bail!("stream {number} ended: {:?} {:?}", trailers.get("grpc-status"), trailers.get("grpc-message"))
}

fn request(options: &StreamOptions, number: usize) -> anyhow::Result<http::Request<()>> {
    http::Request::post(format!("http://{}{METHOD}", options.address))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", (options.authorize)(number))
        .body(())
        .context("failed to build a request")
}

/// Encodes a gRPC frame: a zero byte (not compressed), the length as four bytes, and the message.
fn framed(message: &WatchQueueRequest) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(&message.encode_to_vec());
    frame.freeze()
}

/// Splits a response body into messages. Keeps memory only while a message has arrived in part.
#[derive(Debug, Default)]
struct Frames {
    rest: Bytes,
}

impl Frames {
    fn push(&mut self, piece: Bytes) {
        if self.rest.is_empty() {
            self.rest = piece;
        } else {
            self.rest = [self.rest.as_ref(), piece.as_ref()].concat().into();
        }
    }

    /// Returns the next complete message.
    fn next(&mut self) -> Option<Bytes> {
        let (_, after) = self.rest.split_at_checked(1)?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if after.len() < length {
            return None;
        }
        let mut message = self.rest.split_to(5 + length);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        Some(message.split_off(5))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_distributed_evenly_and_completely() {
        let all: Vec<Range<usize>> = shares(10, 4).collect();
        assert_eq!(all, [0..2, 2..5, 5..7, 7..10]);
        assert_eq!(shares(3, 10).map(|range| range.len()).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(shares(0, 10).map(|range| range.len()).sum::<usize>(), 0);
    }

    #[test]
    fn messages_are_found_at_every_split_of_the_body() {
        let one = framed(&WatchQueueRequest { event_id: "one".to_owned(), ..WatchQueueRequest::default() });
        let two =
            framed(&WatchQueueRequest { event_id: "second".to_owned(), ..WatchQueueRequest::default() });
        let all = [one.as_ref(), two.as_ref()].concat();
        for cut in 0..all.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in [&all[..cut], &all[cut..]] {
                frames.push(Bytes::copy_from_slice(piece));
                while let Some(message) = frames.next() {
                    found.push(WatchQueueRequest::decode(message).unwrap().event_id);
                }
            }
            assert_eq!(found, ["one", "second"], "cut at {cut}");
            assert!(frames.rest.is_empty());
        }
    }
}
