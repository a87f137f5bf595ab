//! All six services in one server, public and internal methods alike: each call is written down and answered as the test
//! has said, by default with an empty message.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use onsale_kit::{
    auth::Identity,
    contract::Contract,
    server::{Chassis, Handler, RequestBody, RunningServer},
};
use onsale_testkit::tokens::TestIssuer;
use onsale_types::SystemClock;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::UnboundedReceiverStream};
use tonic::{Code, Status, body::Body, codegen::BoxFuture};

use crate::support::chassis_config;

/// What reached a service.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) body: Bytes,
}

impl Seen {
    /// The message that was sent.
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        M::decode(self.body.slice(5..)).expect("the body is one message")
    }
}

/// What a method answers.
enum Reply {
    Message(Bytes),
    Failure(Status),
    /// A status that comes after the headers, as from a service that fails late.
    LateFailure(Status),
    /// Sends what the test sends, until it stops.
    Stream(mpsc::UnboundedReceiver<Bytes>),
}

#[derive(Clone, Default)]
pub(crate) struct Fake {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    replies: Mutex<HashMap<String, Reply>>,
    streams_cancelled: AtomicUsize,
}

impl Fake {
    /// Serves every service of the contracts, for callers that `issuer` vouches for.
    pub(crate) async fn start(issuer: &TestIssuer) -> (Self, RunningServer) {
        let fake = Self::default();
        let mut chassis =
            Chassis::new("fake", chassis_config(issuer, &[]), Arc::new(SystemClock)).expect("good settings");
        let contract = Contract::load(&[onsale_proto::DESCRIPTORS]).expect("the contracts are good");
        let mut services: Vec<_> = contract.methods().map(|method| method.service.clone()).collect();
        services.sort();
        services.dedup();
        for service in services {
            chassis.add_handler(service.leak(), fake.clone());
        }
        (fake, chassis.start().await.expect("the fake services start"))
    }

    pub(crate) fn answer<M: Message>(&self, path: &str, message: &M) {
        self.set(path, Reply::Message(message.encode_to_vec().into()));
    }

    pub(crate) fn fail(&self, path: &str, status: Status) {
        self.set(path, Reply::Failure(status));
    }

    pub(crate) fn fail_late(&self, path: &str, status: Status) {
        self.set(path, Reply::LateFailure(status));
    }

    /// From now on one call of `path` gets what is sent here, message by message.
    pub(crate) fn stream(&self, path: &str) -> Messages {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.set(path, Reply::Stream(receiver));
        Messages(sender)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().expect("no test panics in here").clone()
    }

    #[track_caller]
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("a call has reached a service")
    }

    pub(crate) fn streams_cancelled(&self) -> usize {
        self.state.streams_cancelled.load(Ordering::SeqCst)
    }

    fn set(&self, path: &str, reply: Reply) {
        self.state.replies.lock().expect("no test panics in here").insert(path.to_owned(), reply);
    }

    async fn respond(self, request: Request<RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(status) => return status.into_http(),
        };
        let identity = head.extensions.get::<Arc<Identity>>().cloned();
        let seen = Seen { path: path.clone(), headers: head.headers, identity, body };
        self.state.seen.lock().expect("no test panics in here").push(seen);
        let mut replies = self.state.replies.lock().expect("no test panics in here");
        match replies.get(&path) {
            None => messages(tokio_stream::iter([Bytes::new()])),
            Some(Reply::Message(message)) => messages(tokio_stream::iter([message.clone()])),
            Some(Reply::Failure(status)) => status.clone().into_http(),
            Some(Reply::LateFailure(status)) => grpc(tokio_stream::iter([trailers(status)])),
            Some(Reply::Stream(_)) => {
                let Some(Reply::Stream(receiver)) = replies.remove(&path) else { unreachable!() };
                let ending = Ending { state: Arc::clone(&self.state), is_done: false };
                messages(until_done(receiver, ending))
            }
        }
    }
}

/// The sending end of a stream; dropping it ends the stream with OK.
pub(crate) struct Messages(mpsc::UnboundedSender<Bytes>);

impl Messages {
    pub(crate) fn send<M: Message>(&self, message: &M) {
        self.0.send(message.encode_to_vec().into()).expect("the stream is open");
    }
}

/// Counts a stream that was dropped before its end.
struct Ending {
    state: Arc<State>,
    is_done: bool,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.streams_cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn until_done(
    receiver: mpsc::UnboundedReceiver<Bytes>,
    ending: Ending,
) -> impl tokio_stream::Stream<Item = Bytes> + Send + 'static {
    let mut ending = Some(ending);
    let end = tokio_stream::iter(std::iter::from_fn(move || {
        if let Some(ending) = &mut ending {
            ending.is_done = true;
        }
        None
    }));
    UnboundedReceiverStream::new(receiver).chain(end)
}

fn messages(messages: impl tokio_stream::Stream<Item = Bytes> + Send + 'static) -> Response<Body> {
    let frames = messages.map(|message| Frame::data(framed(&message)));
    grpc(frames.chain(tokio_stream::iter([trailers(&Status::new(Code::Ok, ""))])))
}

fn grpc(frames: impl tokio_stream::Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(frames.map(Ok::<_, Status>));
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    status.add_header(&mut headers).expect("a status fits into trailers");
    Frame::trailers(headers)
}

/// A message as gRPC sends it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], length.as_slice(), message].concat().into()
}

impl Handler for Fake {
    fn call(&self, request: Request<RequestBody>) -> BoxFuture<Response<Body>, Infallible> {
        let fake = self.clone();
        Box::pin(async move { Ok(fake.respond(request).await) })
    }
}
