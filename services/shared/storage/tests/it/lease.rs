//! Leases on a real Postgres and Redis Cluster: elections, takeovers, and fencing of old leaders. The other lease tests
//! use its helpers too.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use onsale_kit::{
    error::{Kind, ServiceError},
    tasks::Tasks,
};
use onsale_storage::{
    lease::{Candidacy, Election, Error, Leadership, Lease, LeaseConfig},
    postgres::{Isolation, Postgres, column},
    redis::{Command, Redis},
};
use onsale_testkit::{stack::TestDatabase, wait_until};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::{
    redis::{client, keys},
    support::{run_sql, sandbox_with},
};

/// Lease that does not run out during a test.
pub(crate) const LONG: LeaseConfig = LeaseConfig {
    ttl: Duration::from_secs(60),
    renew_every: Duration::from_millis(500),
    margin: Duration::from_secs(1),
    try_every: Duration::from_millis(100),
    concurrency: 8,
};

/// Lease that runs out within a test.
pub(crate) const SHORT: LeaseConfig = LeaseConfig {
    ttl: Duration::from_millis(1_500),
    renew_every: Duration::from_millis(300),
    margin: Duration::from_millis(150),
    try_every: Duration::from_millis(100),
    concurrency: 8,
};

const SOON: Duration = Duration::from_secs(10);

/// Both stores, and a table that records the epoch of each written line, in order.
pub(crate) struct LeaseStores {
    pub(crate) redis: Redis,
    pub(crate) postgres: Postgres,
    pub(crate) database: TestDatabase,
}

/// Election of one simulated process.
pub(crate) struct Process {
    pub(crate) tasks: Tasks,
    pub(crate) election: Election,
}

impl LeaseStores {
    pub(crate) async fn new(redis: Redis) -> Self {
        let (database, postgres) = sandbox_with(|config| {
            config.idle_in_transaction_timeout = Duration::from_secs(2);
            config.lock_timeout = Duration::from_secs(1);
        })
        .await;
        run_sql(
            &database,
            "CREATE TABLE written (line bigserial PRIMARY KEY, name text, epoch bigint, writer text)",
        )
        .await;
        Self { redis, postgres, database }
    }

    pub(crate) fn process(&self, config: &LeaseConfig) -> Process {
        let tasks = Tasks::new();
        let election =
            Election::start(&self.redis, &self.postgres, &keys(&self.redis), config, &tasks).unwrap();
        Process { tasks, election }
    }

    /// Writes one guarded line as a leader; `hold` keeps the transaction open between guard and write.
    pub(crate) async fn write(&self, lease: &Lease, writer: &str, hold: Duration) -> Result<(), Error> {
        self.postgres
            .transaction("write", async |transaction| {
                lease.guard(&transaction).await?;
                tokio::time::sleep(hold).await;
                let insert = "INSERT INTO written (name, epoch, writer) VALUES ($1, $2, $3)";
                transaction.execute(insert, &[&lease.name(), &lease.epoch(), &writer]).await?;
                Ok(())
            })
            .await
    }

    /// Returns the lines of `name` in order: epoch and writer.
    pub(crate) async fn written(&self, name: &str) -> Vec<(i64, String)> {
        let sql = "SELECT epoch, writer FROM written WHERE name = $1 ORDER BY line";
        let rows = self.postgres.query("written", sql, &[&name]).await.unwrap();
        rows.iter().map(|row| (column(row, "epoch").unwrap(), column(row, "writer").unwrap())).collect()
    }

    pub(crate) async fn epoch(&self, name: &str) -> i64 {
        let sql = "SELECT epoch FROM lease WHERE name = $1";
        let row = self.postgres.query_opt("epoch", sql, &[&name]).await.unwrap();
        row.map_or(0, |row| column(&row, "epoch").unwrap())
    }

    /// Deletes the lease in Redis.
    pub(crate) async fn delete_lease(&self, name: &str) {
        let key = keys(&self.redis).key("lease", name).unwrap();
        let _gone: u64 = self.redis.run(Command::new("DEL").key(&key).idempotent()).await.unwrap();
    }
}

pub(crate) async fn elected(candidacy: &mut Candidacy) -> Lease {
    timeout(SOON, candidacy.elected()).await.expect("elected within 10 s").unwrap()
}

#[tokio::test]
async fn one_of_several_candidates_leads() {
    let stores = LeaseStores::new(client().await).await;
    let processes: Vec<Process> = (0..4).map(|_| stores.process(&LONG)).collect();
    let candidacies: Vec<Candidacy> =
        processes.iter().map(|process| process.election.enter("event-1").unwrap()).collect();
    let leaders = || candidacies.iter().filter_map(Candidacy::lease).collect::<Vec<_>>();
    wait_until("a process leads", SOON, async || !leaders().is_empty()).await;
    let [lease] = <[Lease; 1]>::try_from(leaders()).unwrap();
    assert_eq!((lease.name(), lease.epoch()), ("event-1", 1));
    stores.write(&lease, "leader", Duration::ZERO).await.unwrap();
    // Long enough for several renewals, and for attempts of the others.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let still: Vec<i64> = leaders().iter().map(Lease::epoch).collect();
    assert_eq!((still, stores.epoch("event-1").await), (vec![1], 1));
}

#[tokio::test]
async fn released_lease_is_taken_before_its_ttl_ends() {
    let stores = LeaseStores::new(client().await).await;
    let [first, second] = [stores.process(&LONG), stores.process(&LONG)];
    let mut leader = first.election.enter("event-1").unwrap();
    let old = elected(&mut leader).await;
    let mut follower = second.election.enter("event-1").unwrap();

    let begin = Instant::now();
    let mut seen = leader.leadership();
    drop(leader);
    let new = elected(&mut follower).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "took {:?}, not far below the ttl", begin.elapsed());
    assert!(new.epoch() > old.epoch());
    let notified =
        timeout(SOON, seen.wait_for(|leadership| matches!(leadership, Leadership::Follower))).await;
    notified.expect("the old leader is notified first").unwrap();
    let error = stores.write(&old, "old", Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { epoch: 1, current: Some(2), .. }), "{error:?}");
    assert_eq!(error.kind(), Kind::Contended);
}

#[tokio::test]
async fn shutdown_releases_every_lease() {
    let stores = LeaseStores::new(client().await).await;
    let [first, second] = [stores.process(&LONG), stores.process(&LONG)];
    let names: Vec<String> = (0..40).map(|number| format!("event-{number}")).collect();
    let mut old: Vec<Candidacy> = names.iter().map(|name| first.election.enter(name).unwrap()).collect();
    for candidacy in &mut old {
        elected(candidacy).await;
    }
    let mut new: Vec<Candidacy> = names.iter().map(|name| second.election.enter(name).unwrap()).collect();
    let begin = Instant::now();
    assert!(first.tasks.shutdown(SOON).await.is_empty());
    for candidacy in &mut new {
        assert_eq!(elected(candidacy).await.epoch(), 2);
    }
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert!(old.iter().all(|candidacy| candidacy.lease().is_none()));
    assert!(matches!(first.election.enter("late"), Err(Error::Ended)));
    assert!(matches!(old[0].elected().await, Err(Error::Ended)));
}

#[tokio::test]
async fn crashed_leader_is_replaced_when_its_lease_ends() {
    let stores = LeaseStores::new(client().await).await;
    let key = keys(&stores.redis).key("lease", "event-1").unwrap();
    // This holder never renews.
    let hold = Command::new("SET").key(&key).arg("crashed").arg("PX").arg(1_500);
    let () = stores.redis.run(hold).await.unwrap();
    let begin = Instant::now();
    let process = stores.process(&SHORT);
    let mut candidacy = process.election.enter("event-1").unwrap();
    elected(&mut candidacy).await;
    assert!(begin.elapsed() >= Duration::from_millis(1_400), "too early: {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_secs(5), "too late: {:?}", begin.elapsed());
}

#[tokio::test]
async fn takeover_waits_for_the_open_transaction_of_the_old_leader() {
    let stores = LeaseStores::new(client().await).await;
    let [first, second] = [stores.process(&LONG), stores.process(&LONG)];
    let mut leader = first.election.enter("event-1").unwrap();
    let old = elected(&mut leader).await;
    let (guarded, is_guarded) = oneshot::channel();
    let (resume, resumed) = oneshot::channel::<()>();
    let channels = std::sync::Mutex::new(Some((guarded, resumed)));
    let writing = stores.postgres.transaction("paused", async |transaction| {
        old.guard(&transaction).await?;
        let (guarded, resumed) = channels.lock().unwrap().take().expect("the transaction runs once");
        guarded.send(()).unwrap();
        resumed.await.unwrap();
        let insert = "INSERT INTO written (name, epoch, writer) VALUES ($1, $2, 'old')";
        transaction.execute(insert, &[&old.name(), &old.epoch()]).await?;
        Ok::<_, Error>(())
    });
    let taking_over = async {
        is_guarded.await.unwrap();
        // Redis hands the lease to another process while the leader is paused.
        drop(first);
        let mut follower = second.election.enter("event-1").unwrap();
        replace_holder(&stores, "event-1").await;
        let early = timeout(Duration::from_millis(700), follower.elected()).await;
        assert!(early.is_err(), "the epoch was raised under an open transaction");
        resume.send(()).unwrap();
        let new = elected(&mut follower).await;
        stores.write(&new, "new", Duration::ZERO).await.unwrap();
    };
    let (written, ()) = tokio::join!(writing, taking_over);
    written.unwrap();
    let error = stores.write(&old, "late", Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { .. }), "{error:?}");
    assert!(!old.is_current(), "the old lease is fenced");
    let writers: Vec<String> =
        stores.written("event-1").await.into_iter().map(|(_, writer)| writer).collect();
    assert_eq!(writers, ["old", "new"]);
}

/// Deletes the lease in Redis until another holder has taken it.
async fn replace_holder(stores: &LeaseStores, name: &str) {
    let key = keys(&stores.redis).key("lease", name).unwrap();
    let holder =
        async || -> Option<String> { stores.redis.run(Command::new("GET").key(&key)).await.unwrap() };
    let before = holder().await;
    wait_until("another process holds the lease", SOON, async || {
        let now = holder().await;
        if now == before {
            stores.delete_lease(name).await;
        }
        now.is_some() && now != before
    })
    .await;
}

#[tokio::test]
async fn paused_leader_is_ended_by_the_idle_timeout() {
    let stores = LeaseStores::new(client().await).await;
    let [first, second] = [stores.process(&LONG), stores.process(&LONG)];
    let mut leader = first.election.enter("event-1").unwrap();
    let old = elected(&mut leader).await;
    // Longer than Postgres allows a transaction to be idle.
    let paused = stores.write(&old, "old", Duration::from_secs(4));
    let taking_over = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut follower = second.election.enter("event-1").unwrap();
        replace_holder(&stores, "event-1").await;
        let new = elected(&mut follower).await;
        stores.write(&new, "new", Duration::ZERO).await.unwrap();
    };
    let (paused, ()) = tokio::join!(paused, taking_over);
    assert!(paused.is_err(), "{paused:?}");
    assert_eq!(stores.written("event-1").await, [(2, "new".to_owned())]);
}

#[tokio::test]
async fn guard_after_a_takeover_fences_an_older_transaction() {
    let stores = LeaseStores::new(client().await).await;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let name = format!("event-{isolation:?}");
        let process = stores.process(&LONG);
        let mut candidacy = process.election.enter(&name).unwrap();
        let old = elected(&mut candidacy).await;
        let raised = AtomicBool::new(false);
        let outcome = stores
            .postgres
            .transaction_at(isolation, "late guard", async |transaction| {
                // The first statement takes the snapshot.
                transaction.query("SELECT epoch FROM lease", &[]).await?;
                // In the first attempt only: above READ COMMITTED there is a second one.
                if !raised.swap(true, Ordering::Relaxed) {
                    let raise = "UPDATE lease SET epoch = 7, holder = 'another' WHERE name = $1";
                    stores.postgres.execute("raise", raise, &[&name]).await?;
                }
                old.guard(&transaction).await?;
                let insert = "INSERT INTO written (name, epoch, writer) VALUES ($1, $2, 'old')";
                transaction.execute(insert, &[&name, &old.epoch()]).await?;
                Ok::<_, Error>(())
            })
            .await;
        assert!(matches!(outcome, Err(Error::Fenced { current: Some(7), .. })), "{isolation:?}: {outcome:?}");
        assert!(stores.written(&name).await.is_empty());
    }
}

#[tokio::test]
async fn fenced_leader_may_lead_again_with_a_higher_epoch() {
    let stores = LeaseStores::new(client().await).await;
    let process = stores.process(&LONG);
    let mut candidacy = process.election.enter("event-1").unwrap();
    let old = elected(&mut candidacy).await;
    // Like a failover that restored an old lease: Redis names this process, Postgres does not.
    let raise = "UPDATE lease SET epoch = 5, holder = 'another' WHERE name = 'event-1'";
    stores.postgres.execute("raise", raise, &[]).await.unwrap();
    assert!(stores.write(&old, "old", Duration::ZERO).await.is_err());
    let new = elected(&mut candidacy).await;
    assert_eq!(new.epoch(), 6);
    stores.write(&new, "new", Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn missing_lease_row_fences_the_leader() {
    let stores = LeaseStores::new(client().await).await;
    let process = stores.process(&LONG);
    let mut candidacy = process.election.enter("event-1").unwrap();
    let lease = elected(&mut candidacy).await;
    stores.postgres.execute("lose", "DELETE FROM lease", &[]).await.unwrap();
    let error = stores.write(&lease, "old", Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::Fenced { current: None, .. }), "{error:?}");
}

#[tokio::test]
async fn one_task_leads_200_names() {
    let stores = LeaseStores::new(client().await).await;
    // Short enough to outlast, long enough that a slow machine loses no lease.
    let config =
        LeaseConfig { ttl: Duration::from_secs(5), renew_every: Duration::from_millis(500), ..SHORT };
    let process = stores.process(&config);
    let names: Vec<String> = (0..200).map(|number| format!("event-{number}")).collect();
    let mut candidacies: Vec<Candidacy> =
        names.iter().map(|name| process.election.enter(name).unwrap()).collect();
    for candidacy in &mut candidacies {
        elected(candidacy).await;
    }
    assert!(matches!(process.election.enter("event-7"), Err(Error::Entered { .. })));
    assert!(matches!(process.election.enter("no name"), Err(Error::Redis(_))));
    assert_eq!(process.tasks.running(), ["lease election"]);
    // Longer than the `ttl`, so all leases must have been renewed.
    tokio::time::sleep(config.ttl + Duration::from_secs(1)).await;
    let epochs: Vec<Option<i64>> =
        candidacies.iter().map(|candidacy| candidacy.lease().map(|lease| lease.epoch())).collect();
    assert_eq!(epochs, vec![Some(1); 200]);
    // A name can be left and entered again immediately.
    drop(candidacies.remove(7));
    let mut again = process.election.enter("event-7").unwrap();
    assert_eq!(elected(&mut again).await.epoch(), 2);
}

#[tokio::test]
async fn settings_without_room_for_two_renewals_are_refused() {
    let stores = LeaseStores::new(client().await).await;
    for config in [
        LeaseConfig { renew_every: Duration::ZERO, ..LONG },
        LeaseConfig { concurrency: 0, ..LONG },
        LeaseConfig { ttl: Duration::from_secs(1), ..LONG },
        LeaseConfig { margin: LONG.ttl, ..LONG },
    ] {
        let started =
            Election::start(&stores.redis, &stores.postgres, &keys(&stores.redis), &config, &Tasks::new());
        assert!(matches!(started, Err(Error::Config { .. })), "{config:?}");
    }
    LeaseConfig::default().validate().unwrap();
}
