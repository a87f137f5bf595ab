//! A second Queue pod beside the mesh's own, with the same settings on other ports. The front door does not route to it, so
//! tests call it directly.

use onsale::front_door::Person;
use onsale_proto::queue::v1::{
    WatchQueueRequest, WatchQueueResponse, queue_admin_service_client::QueueAdminServiceClient,
    queue_service_client::QueueServiceClient, queue_update::Update,
};
use onsale_testkit::{
    stack::process::{Launch, Process, Signal, free_port},
    wait_until,
};
use tonic::{Request, Streaming, transport::Channel};

use super::{TIMEOUT, mesh::Mesh};

/// A Queue pod that the supervisor of the mesh does not manage.
pub(crate) struct Pod {
    process: Process,
    channel: Channel,
    log: std::path::PathBuf,
}

impl Pod {
    /// Starts the pod and waits until it is ready.
    pub(crate) async fn start(mesh: &Mesh) -> Self {
        let (port, admin_port) = (free_port().unwrap(), free_port().unwrap());
        let log = mesh.directory().join("logs").join(format!("queue-{port}.log"));
        let variable = |name: &str, value: String| (name.to_owned(), value);
        let launch = Launch {
            name: "queue".to_owned(),
            program: mesh.program("onsale-queue"),
            arguments: Vec::new(),
            environment: vec![
                variable("ONSALE_CONFIG", mesh.directory().join("config/queue.toml").display().to_string()),
                variable("ONSALE_QUEUE__SERVER__LISTEN", format!("127.0.0.1:{port}")),
                variable("ONSALE_QUEUE__SERVER__ADMIN_LISTEN", format!("127.0.0.1:{admin_port}")),
                variable("NO_COLOR", "1".to_owned()),
                variable("NO_PROXY", "127.0.0.1,localhost".to_owned()),
            ],
            user: None,
            log: log.clone(),
            death_signal: Signal::Kill,
        };
        let process = Process::start(&launch).unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let ready = format!("http://127.0.0.1:{admin_port}/readyz");
        wait_until("the second pod is ready", TIMEOUT, || async {
            http.get(&ready).send().await.is_ok_and(|answer| answer.status().is_success())
        })
        .await;
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        Self { process, channel: endpoint.connect_lazy(), log }
    }

    /// Returns true if the pod holds a leader lease, according to the last message about one in its log.
    pub(crate) fn is_leader(&self) -> bool {
        let output = std::fs::read_to_string(&self.log).unwrap();
        output
            .lines()
            .rfind(|line| line.contains("line-keeper"))
            .is_some_and(|line| line.contains("acquired"))
    }

    /// Kills the pod without warning.
    pub(crate) fn kill(self) {
        self.process.signal(Signal::Kill).unwrap();
    }

    pub(crate) fn queue(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone())
    }

    pub(crate) fn queue_admin(&self) -> QueueAdminServiceClient<Channel> {
        QueueAdminServiceClient::new(self.channel.clone())
    }

    /// Opens a `WatchQueue` stream of `person` on this pod.
    pub(crate) async fn watch(&self, person: &Person, event_id: &str) -> Watcher {
        let request = WatchQueueRequest { event_id: event_id.to_owned(), ..WatchQueueRequest::default() };
        Watcher(self.queue().watch_queue(authorized(person, request)).await.unwrap().into_inner())
    }
}

/// Creates a request with the token of `person`.
pub(crate) fn authorized<T>(person: &Person, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {}", person.token).parse().unwrap());
    request
}

/// An open `WatchQueue` stream.
pub(crate) struct Watcher(Streaming<WatchQueueResponse>);

impl Watcher {
    async fn until(&mut self, wanted: impl Fn(&Update) -> bool) {
        let reading = async {
            loop {
                let message = self.0.message().await.unwrap().expect("the stream is still open");
                if message.update.and_then(|update| update.update).is_some_and(|update| wanted(&update)) {
                    return;
                }
            }
        };
        tokio::time::timeout(TIMEOUT, reading).await.expect("the expected update arrives in time");
    }

    pub(crate) async fn until_position(&mut self, position: u64) {
        self.until(|update| matches!(update, Update::PositionUpdate(told) if told.position == position))
            .await;
    }

    pub(crate) async fn until_turn(&mut self) {
        self.until(|update| matches!(update, Update::TurnGranted(_))).await;
    }
}
