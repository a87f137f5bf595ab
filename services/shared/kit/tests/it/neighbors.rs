//! Echo servers and channels to them, shared by the tests of the client.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onsale_kit::{
    backoff::BackoffConfig,
    client::{Channel, ClientConfig, Neighbors, Resolve, RetryConfig},
    contract::Contract,
    tasks::Tasks,
};
use onsale_testkit::{
    echo::{
        self, EchoServer, EchoService,
        v1::{
            EchoOnceRequest, EchoRequest, FailRequest, Seen, WaitRequest,
            echo_service_client::EchoServiceClient,
        },
    },
    wait_until,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tonic::{Code, Status};

use crate::support::TIMEOUT;

pub(crate) type Client = EchoServiceClient<Channel>;

/// A list of addresses that a test can change, and the number of its lookups.
#[derive(Clone, Default)]
pub(crate) struct Addresses {
    list: Arc<Mutex<Vec<SocketAddr>>>,
    lookups: Arc<AtomicU64>,
}

impl Addresses {
    pub(crate) fn of(servers: &[&EchoServer]) -> Self {
        let addresses = Self::default();
        addresses.set(servers.iter().map(|server| server.address()).collect());
        addresses
    }

    pub(crate) fn set(&self, list: Vec<SocketAddr>) {
        *self.list.lock().unwrap() = list;
    }

    /// Waits for two more lookups, because the first of them may have begun before the last change.
    pub(crate) async fn looked_up_again(&self) {
        let before = self.lookups.load(Ordering::SeqCst);
        wait_until("the list is looked up", TIMEOUT, async || {
            self.lookups.load(Ordering::SeqCst) >= before + 2
        })
        .await;
    }

    /// Returns a resolver that behaves like DNS: an empty list is "no such name".
    pub(crate) fn resolver(&self) -> impl Resolve + use<> {
        let (list, lookups) = (Arc::clone(&self.list), Arc::clone(&self.lookups));
        move || {
            lookups.fetch_add(1, Ordering::SeqCst);
            let found = list.lock().unwrap().clone();
            let found = if found.is_empty() { Err(io::Error::other("no such name")) } else { Ok(found) };
            std::future::ready(found)
        }
    }
}

/// Settings with quick retries and lookups and a large budget.
pub(crate) fn config() -> ClientConfig {
    ClientConfig {
        target: "http://echo.test:50051".to_owned(),
        resolve_interval: Duration::from_millis(50),
        retry: RetryConfig {
            backoff: BackoffConfig {
                initial: Duration::from_millis(5),
                max: Duration::from_millis(20),
                multiplier: 2,
                attempts_max: 4,
            },
            budget_percent: 20,
            budget_floor: 20,
        },
        ..ClientConfig::default()
    }
}

pub(crate) fn neighbors() -> Neighbors {
    let contract = Contract::load(&[echo::DESCRIPTORS]).unwrap();
    Neighbors::new(&contract, None, Tasks::new())
}

pub(crate) fn client(config: &ClientConfig, addresses: &Addresses) -> Client {
    EchoServiceClient::new(neighbors().channel_with("echo", config, addresses.resolver()).unwrap())
}

/// Starts a server on a free port of `127.0.0.<last>`. Linux answers on all of 127/8, so each looks like its own host.
pub(crate) async fn start(name: &str, last: u8) -> EchoServer {
    start_at(name, SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0)).await
}

pub(crate) async fn start_at(name: &str, address: SocketAddr) -> EchoServer {
    EchoServer::start(EchoService::new(name), address).await.unwrap()
}

/// Returns an address on which nothing listens.
pub(crate) async fn dead_address(last: u8) -> SocketAddr {
    let server = start("short-lived", last).await;
    let address = server.address();
    server.stop().await;
    address
}

/// Returns an address that neither accepts nor refuses connections, because its backlog is full.
pub(crate) async fn swallowing_address() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await
    {
        queued.push(stream.unwrap());
        assert!(queued.len() < 100, "the backlog never fills");
    }
    (address, queued, listener)
}

/// Calls Echo and returns what the server saw of the call.
pub(crate) async fn echo(client: &mut Client) -> Result<Seen, Status> {
    let response = client.echo(EchoRequest { text: "hello".to_owned() }).await?.into_inner();
    assert_eq!(response.text, "hello");
    Ok(response.seen.unwrap())
}

pub(crate) async fn echo_once(client: &mut Client) -> Result<Seen, Status> {
    let response = client.echo_once(EchoOnceRequest { text: "once".to_owned() }).await?.into_inner();
    Ok(response.seen.unwrap())
}

pub(crate) fn wait_for(span: Duration) -> WaitRequest {
    WaitRequest { span: Some(span.try_into().unwrap()) }
}

pub(crate) fn fail_with(code: Code, times: u32) -> FailRequest {
    FailRequest { code: code.into(), times, key: "test".to_owned(), ..FailRequest::default() }
}
