//! Fake of all six services in one server, with public and internal methods. It records each call and returns the response
//! that the test has set, by default an empty message.

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

/// A recorded call.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedCall {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) body: Bytes,
}

impl ReceivedCall {
    /// Decodes the request message.
    pub(crate) fn message<M: Message + Default>(&self) -> M {
        M::decode(self.body.slice(5..)).expect("the body is one message")
    }
}

/// Response of a method.
enum Reply {
    Message(Bytes),
    HeaderStatus(Status),
    /// A status in the trailers, as from a service that fails after it has sent headers.
    TrailerStatus(Status),
    /// Messages that the test sends, until it drops the sender.
    Stream(mpsc::UnboundedReceiver<Bytes>),
}

#[derive(Clone, Default)]
pub(crate) struct FakeServices {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    calls: Mutex<Vec<ReceivedCall>>,
    replies: Mutex<HashMap<String, Reply>>,
    streams_cancelled: AtomicUsize,
}

impl FakeServices {
    /// Serves every service of the contracts and trusts the tokens of `issuer`.
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

    pub(crate) fn respond_with<M: Message>(&self, path: &str, message: &M) {
        self.set(path, Reply::Message(message.encode_to_vec().into()));
    }

    pub(crate) fn fail_in_headers(&self, path: &str, status: Status) {
        self.set(path, Reply::HeaderStatus(status));
    }

    pub(crate) fn fail_in_trailers(&self, path: &str, status: Status) {
        self.set(path, Reply::TrailerStatus(status));
    }

    /// Answers the next call of `path` with the messages sent to the returned sender.
    pub(crate) fn open_stream(&self, path: &str) -> StreamSender {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.set(path, Reply::Stream(receiver));
        StreamSender(sender)
    }

    pub(crate) fn calls(&self) -> Vec<ReceivedCall> {
        self.state.calls.lock().expect("no panic while locked").clone()
    }

    #[track_caller]
    pub(crate) fn last_call(&self) -> ReceivedCall {
        self.calls().pop().expect("a call has reached a service")
    }

    pub(crate) fn streams_cancelled(&self) -> usize {
        self.state.streams_cancelled.load(Ordering::SeqCst)
    }

    fn set(&self, path: &str, reply: Reply) {
        self.state.replies.lock().expect("no panic while locked").insert(path.to_owned(), reply);
    }

    async fn respond(self, request: Request<RequestBody>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(status) => return status.into_http(),
        };
        let identity = head.extensions.get::<Arc<Identity>>().cloned();
        let received = ReceivedCall { path: path.clone(), headers: head.headers, identity, body };
        self.state.calls.lock().expect("no panic while locked").push(received);
        let mut replies = self.state.replies.lock().expect("no panic while locked");
        match replies.get(&path) {
            None => messages(tokio_stream::iter([Bytes::new()])),
            Some(Reply::Message(message)) => messages(tokio_stream::iter([message.clone()])),
            Some(Reply::HeaderStatus(status)) => status.clone().into_http(),
            Some(Reply::TrailerStatus(status)) => grpc(tokio_stream::iter([trailers(status)])),
            Some(Reply::Stream(_)) => {
                let Some(Reply::Stream(receiver)) = replies.remove(&path) else { unreachable!() };
                let counter = CancelCounter { state: Arc::clone(&self.state), is_done: false };
                messages(until_done(receiver, counter))
            }
        }
    }
}

/// Sends the messages of one stream. Dropping it ends the stream with OK.
pub(crate) struct StreamSender(mpsc::UnboundedSender<Bytes>);

impl StreamSender {
    pub(crate) fn send<M: Message>(&self, message: &M) {
        self.0.send(message.encode_to_vec().into()).expect("the stream is open");
    }
}

/// Counts a stream as cancelled if it is dropped before its end.
struct CancelCounter {
    state: Arc<State>,
    is_done: bool,
}

impl Drop for CancelCounter {
    fn drop(&mut self) {
        if !self.is_done {
            self.state.streams_cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn until_done(
    receiver: mpsc::UnboundedReceiver<Bytes>,
    counter: CancelCounter,
) -> impl tokio_stream::Stream<Item = Bytes> + Send + 'static {
    let mut counter = Some(counter);
    let end = tokio_stream::iter(std::iter::from_fn(move || {
        if let Some(counter) = &mut counter {
            counter.is_done = true;
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
    status.add_header(&mut headers).expect("the status fits into trailers");
    Frame::trailers(headers)
}

/// Returns the message with its gRPC frame header.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], length.as_slice(), message].concat().into()
}

impl Handler for FakeServices {
    fn call(&self, request: Request<RequestBody>) -> BoxFuture<Response<Body>, Infallible> {
        let fake = self.clone();
        Box::pin(async move { Ok(fake.respond(request).await) })
    }
}
