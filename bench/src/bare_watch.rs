//! The limit of the `watch` benchmarks: `WatchQueue` in bare tonic, in a process of its own. Every stream sends one message
//! and then every broadcast.

use std::{
    convert::Infallible,
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, future, stream};
use onsale_proto::queue::v1::{WatchQueueRequest, WatchQueueResponse, queue_update::Update};
use onsale_types::{Clock as _, SystemClock};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::broadcast,
    task::JoinSet,
};
use tokio_stream::wrappers::{BroadcastStream, TcpListenerStream};
use tonic::{
    Request, Response, Status,
    body::Body,
    codec::{BufferSettings, Codec},
    codegen::{BoxFuture, BoxStream, Service},
    server::{Grpc, NamedService, ServerStreamingService},
};
use tonic_prost::{ProstDecoder, ProstEncoder};

const TIMEOUT: Duration = Duration::from_secs(60);
/// Number of broadcasts that a slow stream may lag.
const CAPACITY: usize = 16;
/// Codec buffers: enough for our messages, and the bytes that a stream sends before it yields.
const BUFFER_BYTES: usize = 128;
const YIELD_BYTES: usize = 32 * 1024;

/// Arguments of the hidden command `serve-watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// First message of every stream, in hexadecimal digits
    #[arg(long)]
    message: String,
    /// Maximum number of streams on one connection
    #[arg(long)]
    streams_per_connection_max: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    address: SocketAddr,
}

/// Response to a line on standard input: the time of the broadcast, in microseconds since 1970.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    sent_micros: i64,
}

/// The server in another process, which ends when this handle is dropped.
pub(crate) struct BareWatch {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    pub(crate) pid: u32,
    pub(crate) address: SocketAddr,
}

impl BareWatch {
    /// Starts this executable again as a server whose messages are as long as `message`.
    pub(crate) async fn start(message: &[u8], streams_per_connection_max: usize) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "serve-watch", "--message", &to_hex(message), "--streams-per-connection-max"])
            .arg(streams_per_connection_max.to_string())
            // The pipe closes when this process ends, however it ends; the server then exits.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start the bare server")?;
        let pid = child.id().context("the bare server has ended")?;
        let input = child.stdin.take().context("the bare server's input is not piped")?;
        let output = child.stdout.take().context("the bare server's output is not piped")?;
        let mut output = BufReader::new(output).lines();
        let hello: Hello = read_line(&mut output).await?;
        Ok(Self { child, input, output, pid, address: hello.address })
    }

    /// Makes the server broadcast to all streams. Returns the time of it in microseconds of the machine's clock.
    pub(crate) async fn send(&mut self) -> anyhow::Result<i64> {
        self.input.write_all(b"send\n").await.context("failed to write to the bare server")?;
        self.input.flush().await.context("failed to write to the bare server")?;
        Ok(read_line::<Sent>(&mut self.output).await?.sent_micros)
    }

    /// Kills the process and waits for its end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("failed to stop the bare server")
    }
}

async fn read_line<T: for<'a> Deserialize<'a>>(
    output: &mut Lines<BufReader<ChildStdout>>,
) -> anyhow::Result<T> {
    let line = tokio::time::timeout(TIMEOUT, output.next_line())
        .await
        .context("the bare server sent no line in 60 s")?;
    let line = line.context("failed to read from the bare server")?.context("the bare server has ended")?;
    serde_json::from_str(&line).context("the bare server sent an invalid line")
}

/// Serves until standard input ends.
pub(crate) async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let message = from_hex(&arguments.message).context("the message is not hexadecimal")?;
    let first = WatchQueueResponse::decode(message.as_slice()).context("the message cannot be read")?;
    let (updates, _) = broadcast::channel(CAPACITY);
    let steps = AtomicU64::new(0);
    let service = BareQueueService { first: Arc::new(first.clone()), updates: updates.clone() };
    let listener = TcpListener::bind("127.0.0.1:0").await.context("failed to listen")?;
    let address = listener.local_addr().context("failed to listen")?;
    let server = tonic::transport::Server::builder()
        .max_concurrent_streams(arguments.streams_per_connection_max)
        .add_service(service);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(server.serve_with_incoming(TcpListenerStream::new(listener)).await) });
    println!("{}", serde_json::to_string(&Hello { address })?);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(_)) = lines.next_line().await {
        let next = stepped(&first, steps.fetch_add(1, Ordering::Relaxed) + 1);
        let sent_micros = SystemClock.now().as_micros();
        // Fails if no stream is open, which is fine.
        let _ = updates.send(next);
        println!("{}", serde_json::to_string(&Sent { sent_micros })?);
    }
    tasks.shutdown().await;
    Ok(())
}

/// `WatchQueue` in bare tonic, without identity, deadlines, metrics or lookups. Written by hand because the generated server
/// uses the standard codec, whose buffers need more memory than the rest of a stream.
#[derive(Clone)]
struct BareQueueService {
    first: Arc<WatchQueueResponse>,
    updates: broadcast::Sender<WatchQueueResponse>,
}

impl NamedService for BareQueueService {
    const NAME: &'static str = "onsale.queue.v1.QueueService";
}

impl Service<http::Request<Body>> for BareQueueService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let bare = self.clone();
        Box::pin(async move { Ok(Grpc::new(SmallCodec).server_streaming(bare, request).await) })
    }
}

impl ServerStreamingService<WatchQueueRequest> for BareQueueService {
    type Response = WatchQueueResponse;
    type ResponseStream = BoxStream<WatchQueueResponse>;
    type Future = future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _request: Request<WatchQueueRequest>) -> Self::Future {
        let updates = BroadcastStream::new(self.updates.subscribe());
        let first = stream::once(future::ready(Ok(self.first.as_ref().clone())));
        let updates = updates.filter_map(|item| future::ready(item.ok().map(Ok)));
        future::ready(Ok(Response::new(Box::pin(first.chain(updates)))))
    }
}

/// The codec of generated code with buffers of 128 bytes instead of 8 KiB per stream.
struct SmallCodec;

impl Codec for SmallCodec {
    type Encode = WatchQueueResponse;
    type Decode = WatchQueueRequest;
    type Encoder = ProstEncoder<WatchQueueResponse>;
    type Decoder = ProstDecoder<WatchQueueRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(BufferSettings::new(BUFFER_BYTES, YIELD_BYTES))
    }
}

/// Returns the message with another position of the same encoded length, which is an update to every stream.
fn stepped(message: &WatchQueueResponse, steps: u64) -> WatchQueueResponse {
    let mut next = message.clone();
    if let Some(update) = &mut next.update
        && let Some(Update::PositionUpdate(update)) = &mut update.update
    {
        update.position =
            if update.position > steps { update.position - steps } else { update.position + steps };
    }
    next
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).ok()).collect()
}

#[cfg(test)]
mod tests {
    use onsale_proto::queue::v1::{PositionUpdate, QueueUpdate};

    use super::*;

    #[test]
    fn hexadecimal_digits_decode_to_the_same_bytes() {
        let bytes = [0, 1, 127, 128, 255];
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes.to_vec()));
        assert_eq!((from_hex("0"), from_hex("zz")), (None, None));
    }

    #[test]
    fn every_broadcast_has_a_new_position_and_the_same_length() {
        let update = PositionUpdate { seq: 50_000, position: 50_000, ..PositionUpdate::default() };
        let first = WatchQueueResponse {
            update: Some(QueueUpdate { revision: 1, update: Some(Update::PositionUpdate(update)) }),
        };
        assert_ne!(stepped(&first, 1), stepped(&first, 2));
        assert_ne!(stepped(&first, 1), first);
        assert_eq!(stepped(&first, 1).encoded_len(), first.encoded_len());
    }
}
