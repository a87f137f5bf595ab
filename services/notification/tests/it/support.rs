//! A running Notification with a sandbox mail server, outboxes of the services whose events it consumes, tokens for callers,
//! and access to its tables.

use std::{path::Path, sync::Arc, time::Duration};

use onsale_kit::tasks::Tasks;
use onsale_proto::{
    EventPayload, TOPICS,
    auth::v1::Role,
    events::v1::{GeneratedTicket, GenerationCompleted, OrderCompleted, TicketGenerated},
    notification::v1::{
        notification_admin_service_client::NotificationAdminServiceClient,
        notification_internal_service_client::NotificationInternalServiceClient,
    },
    r#type::v1::{EventSummary, LineItem, Money, Seat, Unit},
};
use onsale_sandbox::mail::{Catcher, Config, Mail, Query};
use onsale_storage::{
    messaging::{DeadLetters, NewEvent, Outbox, Relay, RelayConfig},
    postgres::{Error, Postgres, column},
    redis::{Redis, RedisConfig},
};
use onsale_testkit::{
    service::{TestService, TestStores},
    stack, tokens, wait_until,
};
use onsale_types::{OrganizerId, SystemClock};
use tempfile::TempDir;
use tonic::{Request, Status, transport::Channel};
use tonic_types::StatusExt;
use uuid::Uuid;

pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);
pub(crate) const BUYER: &str = "ana@example.com";

/// Services whose events Notification consumes.
const SOURCES: [&str; 5] = ["inventory", "queue", "claim", "payment", "ticketing"];

/// Settings with short timeouts, intervals and pauses.
const FAST_SETTINGS: [(&str, &str); 6] = [
    ("MAIL__COMMAND_TIMEOUT", "1s"),
    ("MAIL__SEND_TIMEOUT", "1s"),
    ("DELIVERY__LEASE", "2s"),
    ("DELIVERY__POLL_EVERY", "20ms"),
    ("DELIVERY__PAUSES", r#"["50ms", "100ms"]"#),
    ("WEB__URL", "https://tickets.example.com"),
];

pub(crate) struct World {
    pub(crate) service: TestService,
    pub(crate) catcher: Catcher,
    /// Connected to the service's schema.
    pub(crate) store: Postgres,
    /// Folder in which the mail server stores its mails.
    _folder: TempDir,
    redis: Redis,
}

pub(crate) async fn stores() -> TestStores {
    TestStores { database: stack::database().await.unwrap(), redis: stack::redis().await.unwrap() }
}

pub(crate) async fn catcher(folder: &Path) -> Catcher {
    Catcher::start(Config::new(folder)).await.unwrap()
}

/// Starts the service only, with `smtp_url` as its mail server.
pub(crate) async fn start(stores: TestStores, smtp_url: &str, settings: &[(&str, &str)]) -> TestService {
    let settings: Vec<_> =
        FAST_SETTINGS.iter().chain(&[("MAIL__SMTP_URL", smtp_url)]).chain(settings).copied().collect();
    TestService::start_on(
        onsale_notification::SERVICE,
        onsale_notification::DEFAULTS,
        stores,
        &settings,
        onsale_notification::build,
    )
    .await
    .unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// Like [`World::new`], with settings that override the fast ones.
    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        Self::on(stores().await, settings).await
    }

    /// Like [`World::with`], on the stores of a service that has stopped.
    pub(crate) async fn on(stores: TestStores, settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catcher = catcher(folder.path()).await;
        let service = start(stores, &format!("smtp://{}", catcher.smtp_address()), settings).await;
        let store = Postgres::connect(&service.database.config("notification")).await.unwrap();
        let redis = RedisConfig::new(service.redis.urls.clone(), &service.redis.prefix);
        let redis = Redis::connect(&redis).await.unwrap();
        let world = Self { service, catcher, store, _folder: folder, redis };
        let config = RelayConfig { retain_every: Duration::from_millis(100), ..RelayConfig::default() };
        // The relays end with the runtime of the test.
        let tasks = Tasks::new();
        for source in SOURCES {
            let (postgres, outbox) = world.sender(source);
            let relay = Relay::new(postgres, world.redis.clone(), &outbox, TOPICS, config.clone());
            relay.unwrap().start(&tasks);
        }
        world
    }

    fn sender(&self, source: &'static str) -> (Postgres, Outbox) {
        let postgres = Postgres::lazy(&self.service.database.config(source)).unwrap();
        (postgres, Outbox::new(source, Arc::new(SystemClock)))
    }

    /// Publishes an event through the outbox of the service that owns its topic.
    pub(crate) async fn publish<P: EventPayload>(&self, payload: &P) {
        let (postgres, outbox) = self.sender(P::SOURCE);
        let outbox = &outbox;
        postgres
            .transaction("publish", |transaction| async move {
                outbox.append(&transaction, &[NewEvent::new("key", payload)]).await?;
                Ok::<_, Error>(())
            })
            .await
            .unwrap();
    }

    pub(crate) async fn mails(&self, to: &str) -> Vec<Mail> {
        let query = Query { to: Some(to.to_owned()), limit: None };
        self.catcher.mails(&query).await.unwrap()
    }

    /// Waits until all work is done, and returns the mail to `to`. Fails unless there is exactly one.
    pub(crate) async fn only_mail(&self, to: &str) -> Mail {
        wait_until("a mail arrives", WAIT_MAX, async || !self.mails(to).await.is_empty()).await;
        self.wait_until_idle().await;
        let [mail] = self.mails(to).await.try_into().expect("one mail");
        mail
    }

    /// Waits until every published event is acknowledged and no delivery is QUEUED or SENDING.
    pub(crate) async fn wait_until_idle(&self) {
        for source in SOURCES {
            let sql = "SELECT count(*) AS count FROM outbox LEFT JOIN outbox_group
                ON outbox_group.topic = outbox.topic AND consumer_group = 'notification'
                WHERE position IS NULL OR position > coalesce(acknowledged_position, 0)";
            let (postgres, _) = self.sender(source);
            wait_until("every event is acknowledged", WAIT_MAX, async || {
                column::<i64>(&postgres.query_one("count events", sql, &[]).await.unwrap(), "count").unwrap()
                    == 0
            })
            .await;
        }
        wait_until("no delivery is open", WAIT_MAX, async || {
            self.count("SELECT count(*) AS count FROM delivery WHERE state IN ('QUEUED', 'SENDING')").await
                == 0
        })
        .await;
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        column(&self.store.query_one("count", sql, &[]).await.unwrap(), "count").unwrap()
    }

    /// Returns the errors of the events in the dead letters of the consumers.
    pub(crate) async fn dead_event_errors(&self) -> Vec<String> {
        let letters = DeadLetters::new(self.store.clone(), "notification").list(None, 100).await.unwrap();
        letters.letters.into_iter().map(|letter| letter.error).collect()
    }

    pub(crate) async fn channel(&self) -> Channel {
        self.service.channel().await.unwrap()
    }

    pub(crate) async fn admin(&self) -> NotificationAdminServiceClient<Channel> {
        NotificationAdminServiceClient::new(self.channel().await)
    }

    pub(crate) async fn internal(&self) -> NotificationInternalServiceClient<Channel> {
        NotificationInternalServiceClient::new(self.channel().await)
    }

    /// Adds a token of the organizer `subject`.
    pub(crate) fn as_organizer<T>(&self, subject: &str, message: T) -> Request<T> {
        with_token(&self.service.issuer.token_for(subject, &[Role::Organizer]), message)
    }

    /// Adds a token of a service.
    pub(crate) fn as_service<T>(&self, message: T) -> Request<T> {
        with_token(&self.service.issuer.token_for("claim", &[Role::Service]), message)
    }

    /// Publishes that `event` belongs to the organizer `subject`, and waits until Notification has recorded it.
    pub(crate) async fn publish_owner(&self, subject: &str, event: &EventSummary) {
        self.publish(&GenerationCompleted {
            generation_id: id(),
            event: Some(event.clone()),
            organizer_id: organizer_id(subject).to_string(),
            revision: 1,
            ticket_count: 10,
            complete_time: Some(seconds(1)),
        })
        .await;
        let event_id = Uuid::parse_str(&event.event_id).unwrap();
        wait_until("the owner is recorded", WAIT_MAX, async || {
            let sql = "SELECT 1 FROM event_owner WHERE event_id = $1";
            self.store.query_opt("owner", sql, &[&event_id]).await.unwrap().is_some()
        })
        .await;
    }
}

fn with_token<T>(token: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub(crate) fn organizer_id(subject: &str) -> OrganizerId {
    tokens::identity(subject).organizer_id()
}

/// Returns the reason in the error details.
pub(crate) fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

pub(crate) fn id() -> String {
    Uuid::now_v7().to_string()
}

pub(crate) fn seconds(seconds: i64) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds, nanos: 0 }
}

pub(crate) fn euros(amount_minor: i64) -> Option<Money> {
    Some(Money { amount_minor, currency_code: "EUR".to_owned() })
}

pub(crate) fn event(name: &str) -> EventSummary {
    EventSummary {
        event_id: id(),
        name: name.to_owned(),
        venue_name: "Arena Zagreb".to_owned(),
        venue_address: "Lanište 1".to_owned(),
        time_zone: "Europe/Zagreb".to_owned(),
        start_time: Some(seconds(1_783_360_800)),
    }
}

fn units() -> [Unit; 2] {
    ["7", "8"].map(|seat_label| Unit {
        number: seat_label.parse().unwrap(),
        seat: Some(Seat { row_label: "A".to_owned(), seat_label: seat_label.to_owned() }),
    })
}

/// Returns the events of an order of two seats.
pub(crate) fn order(name: &str) -> (OrderCompleted, TicketGenerated) {
    let (claim_id, customer_id, event) = (id(), id(), event(name));
    let order = OrderCompleted {
        claim_id: claim_id.clone(),
        event: Some(event.clone()),
        customer_id: customer_id.clone(),
        buyer_email: BUYER.to_owned(),
        buyer_locale: "en-GB".to_owned(),
        items: vec![LineItem {
            sector_id: id(),
            sector_name: "Tribina".to_owned(),
            units: units().to_vec(),
            unit_price: euros(4_990),
            amount: euros(9_980),
            group_count: 1,
        }],
        total: euros(9_980),
        payment_id: id(),
        fencing_number: 1,
        complete_time: Some(seconds(1)),
    };
    let ticket = |unit: Unit| GeneratedTicket {
        ticket_id: id(),
        sector_id: id(),
        sector_name: "Tribina".to_owned(),
        code: format!("CODE-{}-{}", unit.number, claim_id),
        unit: Some(unit),
    };
    let tickets = TicketGenerated {
        claim_id: claim_id.clone(),
        event: Some(event),
        customer_id,
        recipient_email: BUYER.to_owned(),
        recipient_locale: "en-GB".to_owned(),
        tickets: units().into_iter().map(ticket).collect(),
        issue_time: Some(seconds(2)),
    };
    (order, tickets)
}
