//! Crowds of customers who join and watch at once, and the last message that each watcher got.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{StreamExt, future::join_all, stream};
use onsale_proto::{auth::v1::Role, queue::v1::queue_update::Update};
use onsale_testkit::service::TestService;
use onsale_testkit::wait_until;
use tokio::task::JoinSet;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::support::{Person, World};

/// Number of streams opened at a time.
const OPENING: usize = 100;

/// Several connections to one pod.
pub(crate) struct Door<'a> {
    service: &'a TestService,
    channels: Vec<Channel>,
}

/// A customer in line.
pub(crate) struct Member {
    pub(crate) person: Person,
    pub(crate) seq: u64,
    pub(crate) position: u64,
}

/// Last message of a watcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    Position(u64),
    Turn,
    Expired,
    /// The stream ended with an error.
    Cut,
}

/// The watchers of a crowd.
pub(crate) struct Watchers {
    told: Vec<(u64, Arc<Mutex<Told>>)>,
    _reading: JoinSet<()>,
}

impl<'a> Door<'a> {
    pub(crate) async fn of(service: &'a TestService, connections: usize) -> Self {
        let mut channels = Vec::new();
        for _ in 0..connections {
            channels.push(service.channel().await.unwrap());
        }
        Self { service, channels }
    }

    pub(crate) fn channel(&self, number: usize) -> &Channel {
        &self.channels[number % self.channels.len()]
    }
}

/// Joins `count` customers at once through all doors. Every fifth customer joins twice at the same time, through two doors if
/// there are two.
pub(crate) async fn join_at_once(
    world: &World,
    doors: &[Door<'_>],
    event: &str,
    count: usize,
) -> Vec<Member> {
    let joins = (0..count).map(|number| async move {
        let person = world.customer();
        let join = async |door: &Door<'_>| {
            let person = person.known_to(door.service, Role::Customer);
            person.join(door.channel(number), event).await.unwrap().standing.unwrap()
        };
        let (door, other) = (&doors[number % doors.len()], &doors[(number + 1) % doors.len()]);
        let standing = if number % 5 == 0 {
            let (phone, laptop) = tokio::join!(join(door), join(other));
            assert_eq!((&phone.entry, phone.position), (&laptop.entry, laptop.position));
            phone
        } else {
            join(door).await
        };
        Member { person, seq: standing.entry.unwrap().seq, position: standing.position }
    });
    let mut members = join_all(joins).await;
    members.sort_by_key(|member| member.seq);
    members
}

/// Asserts that the responses form one order without a gap, and that Postgres has the same order.
pub(crate) async fn assert_one_order(world: &World, event: &str, members: &[Member]) {
    let count = u64::try_from(members.len()).unwrap();
    let seqs: BTreeSet<u64> = members.iter().map(|member| member.seq).collect();
    assert_eq!(seqs, (1..=count).collect());
    for member in members {
        assert_eq!(member.seq, member.position, "nobody has left, so the number is the place");
    }
    let stored = seqs_of(world, event).await;
    assert_eq!(stored.len(), members.len());
    for member in members {
        assert_eq!(stored.get(&member.person.customer_id()), Some(&member.seq));
    }
}

/// Reads each customer's number in line from Postgres.
pub(crate) async fn seqs_of(world: &World, event: &str) -> BTreeMap<String, u64> {
    let sql = "SELECT customer_id, seq FROM entry WHERE event_id = $1";
    let rows = world.postgres.query("seqs", sql, &[&Uuid::parse_str(event).unwrap()]).await.unwrap();
    let seq = |row: &onsale_storage::postgres::Row| u64::try_from(row.get::<_, i64>(1)).unwrap();
    rows.iter().map(|row| (row.get::<_, Uuid>(0).to_string(), seq(row))).collect()
}

/// Inserts entries of customers who never poll or watch.
pub(crate) async fn silent(world: &World, event: &str, count: i64) {
    let sql = "WITH crowd AS (
            INSERT INTO entry (entry_id, event_id, customer_id, seq, state, revision, join_time, display_name, avatar_url,
                request_id, fingerprint)
            SELECT gen_random_uuid(), $1, gen_random_uuid(), seq, 'WAITING', 1, now(), '', '', gen_random_uuid(),
                gen_random_uuid()
            FROM generate_series(1, $2::bigint) AS seq RETURNING 1)
        UPDATE line SET last_seq = $2, waiting_count = $2, revision = revision + 1
        WHERE event_id = $1 AND (SELECT count(*) FROM crowd) = $2";
    let event_id = Uuid::parse_str(event).unwrap();
    assert_eq!(world.postgres.execute("crowd", sql, &[&event_id, &count]).await.unwrap(), 1);
}

impl Watchers {
    /// Opens a stream for each member and waits for the first message.
    pub(crate) async fn open(door: &Door<'_>, event: &str, members: &[Member]) -> Self {
        let opened = stream::iter(members.iter().enumerate())
            .map(|(number, member)| async move {
                let person = member.person.known_to(door.service, Role::Customer);
                let mut watcher = person.watch(door.channel(number), event, 0).await.unwrap();
                let first = watcher.next().await.expect("the stream goes on");
                (member.seq, watcher, first)
            })
            .buffer_unordered(OPENING);
        let opened: Vec<_> = opened.collect().await;
        let mut reading = JoinSet::new();
        let mut told = Vec::new();
        for (seq, mut watcher, first) in opened {
            let state = Arc::new(Mutex::new(Told::Nothing));
            note(&state, &first);
            told.push((seq, Arc::clone(&state)));
            reading.spawn(async move {
                while let Some(update) = watcher.read().await {
                    match update {
                        Ok(update) => note(&state, &update),
                        Err(_status) => *state.lock().unwrap() = Told::Cut,
                    }
                }
            });
        }
        Self { told, _reading: reading }
    }

    /// Waits at most `bound` until every watcher's last message equals the state in Postgres.
    pub(crate) async fn converge(&self, world: &World, event: &str, bound: Duration) {
        let truth = truth(world, event).await;
        let wrong = || {
            let told = self.told.iter().map(|(seq, told)| (*seq, *told.lock().unwrap()));
            told.filter(|(seq, told)| truth.get(seq) != Some(told)).collect::<Vec<_>>()
        };
        let begin = tokio::time::Instant::now();
        while !wrong().is_empty() {
            if begin.elapsed() >= bound {
                let wrong = wrong();
                let first: Vec<_> =
                    wrong.iter().take(5).map(|(seq, told)| (seq, told, truth.get(seq))).collect();
                panic!(
                    "after {bound:?} {} of {} were not told the truth: {first:?}",
                    wrong.len(),
                    self.told.len()
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Records a message and asserts that no position gets worse.
fn note(state: &Mutex<Told>, update: &Update) {
    let mut told = state.lock().unwrap();
    let new = match update {
        Update::PositionUpdate(update) => Told::Position(update.position),
        Update::TurnGranted(_) => Told::Turn,
        Update::EntryExpired(_) => Told::Expired,
        _ => return,
    };
    let is_fall = match (*told, new) {
        (Told::Position(before), Told::Position(now)) => now > before,
        (Told::Turn | Told::Expired, Told::Position(_)) => true,
        _ => false,
    };
    assert!(!is_fall, "{new:?} after {told:?}");
    *told = new;
}

/// Reads the expected last message of every watcher from Postgres.
async fn truth(world: &World, event: &str) -> BTreeMap<u64, Told> {
    let sql = "SELECT seq, state, CASE state WHEN 'WAITING' THEN
            count(*) FILTER (WHERE state = 'WAITING') OVER (ORDER BY seq) END
        FROM entry WHERE event_id = $1";
    let rows = world.postgres.query("truth", sql, &[&Uuid::parse_str(event).unwrap()]).await.unwrap();
    let number = |value: i64| u64::try_from(value).unwrap();
    let told = |row: &onsale_storage::postgres::Row| match row.get::<_, &str>(1) {
        "WAITING" => Told::Position(number(row.get(2))),
        "ADMITTED" => Told::Turn,
        _ => Told::Expired,
    };
    rows.iter().map(|row| (number(row.get(0)), told(row))).collect()
}

#[tokio::test]
async fn thousand_concurrent_joins_get_one_order_without_gaps() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let doors = [Door::of(&world.service, 4).await];
    let members = join_at_once(&world, &doors, &event, 1_000).await;
    assert_one_order(&world, &event, &members).await;
    // Redis has the same order shortly after.
    wait_until("positions are the numbers", crate::support::SOON, || async {
        let asked = [0, 499, 999].map(|place: usize| &members[place]);
        let answers = join_all(asked.map(|member| world.position(&member.person, &event))).await;
        answers.into_iter().zip(asked).all(|(answer, member)| answer.unwrap().position == member.seq)
    })
    .await;
}

#[tokio::test]
async fn joins_on_two_pods_get_one_order_without_gaps() {
    let world = World::start().await;
    let event = world.open_queue().await;
    let pod = world.another_pod().await;
    let doors = [Door::of(&world.service, 2).await, Door::of(&pod, 2).await];
    let members = join_at_once(&world, &doors, &event, 1_000).await;
    assert_one_order(&world, &event, &members).await;
}
