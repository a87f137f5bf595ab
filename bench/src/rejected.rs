//! Two rejected designs of a reservation, measured for comparison. Conditions favor them: one statement, so one round trip and
//! one transaction per customer, directly to Postgres, without gRPC, token or turn, and with the best size of the pool.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};
use tokio::{sync::Mutex, task::JoinSet};
use tokio_postgres::{Client, Statement};
use tonic::Status;
use uuid::Uuid;

use crate::{
    load::{self, Load, Outcome},
    report::{median, ratio},
    testbed::{Testbed, connect},
};

/// Sizes of the connection pool that are tried.
const POOLS: [usize; 4] = [8, 16, 32, 64];
/// Time of each trial.
const TRY: Duration = Duration::from_secs(1);
/// Units in total: in one sector for a measurement, split into one sector per size of the pool for the trials.
const UNITS: i32 = 1_000_000;
/// Longest measurement; a longer one would run out of units.
const MEASURED_MAX: Duration = Duration::from_secs(20);

const SCHEMA: &str = "
    CREATE SCHEMA rejected;
    CREATE TABLE rejected.sector (sector integer PRIMARY KEY, free integer NOT NULL CHECK (free >= 0))
        WITH (fillfactor = 20);
    CREATE TABLE rejected.hold (
        hold_id uuid PRIMARY KEY, customer_id uuid NOT NULL, sector integer NOT NULL, units integer[],
        create_time timestamptz NOT NULL DEFAULT now());
    CREATE TABLE rejected.unit (
        sector integer NOT NULL, unit integer NOT NULL, hold_id uuid, PRIMARY KEY (sector, unit)) WITH (fillfactor = 50);
    CREATE INDEX unit_free ON rejected.unit (sector, unit) WHERE hold_id IS NULL";

const EMPTY: &str = "TRUNCATE rejected.sector, rejected.hold, rejected.unit";
const FILL_SECTORS: &str =
    "INSERT INTO rejected.sector SELECT number, $2 FROM generate_series(1, $1::integer) AS number";
const FILL_UNITS: &str = "INSERT INTO rejected.unit (sector, unit)
    SELECT sector, unit FROM generate_series(1, $1::integer) AS sector, generate_series(1, $2::integer) AS unit";
const ANALYZE: &str = "VACUUM ANALYZE rejected.sector, rejected.unit, rejected.hold";

const GUARDED_COUNTER: &str = "
    WITH taken AS (UPDATE rejected.sector SET free = free - 2 WHERE sector = $1 AND free >= 2 RETURNING sector)
    INSERT INTO rejected.hold (hold_id, customer_id, sector) SELECT $2, $3, sector FROM taken";
const SKIP_LOCKED: &str = "
    WITH head AS (
        SELECT sector, unit FROM rejected.unit WHERE sector = $1 AND hold_id IS NULL
        ORDER BY unit LIMIT 2 FOR UPDATE SKIP LOCKED
    ), taken AS (
        UPDATE rejected.unit SET hold_id = $2 FROM head
        WHERE unit.sector = head.sector AND unit.unit = head.unit RETURNING unit.unit
    )
    INSERT INTO rejected.hold (hold_id, customer_id, sector, units)
    SELECT $2, $3, $1, array_agg(unit) FROM taken HAVING count(*) = 2";

/// Way to find free units.
#[derive(Clone, Copy, Debug)]
enum Design {
    /// One row per sector counts its free units.
    GuardedCounter,
    /// One row per unit; each customer takes the first ones that no other transaction has locked.
    SkipLocked,
}

/// A rejected design with the best size of its pool.
pub(crate) struct Rejected {
    design: Design,
    pool: usize,
    /// Reservations per second by size of the pool.
    tried: BTreeMap<usize, f64>,
    /// One outcome per round.
    measured: Vec<Outcome>,
}

/// Creates the tables and finds the best pool of each design.
pub(crate) async fn prepare(testbed: &Testbed, callers: usize) -> anyhow::Result<Vec<Rejected>> {
    testbed
        .postgres
        .batch_execute(SCHEMA)
        .await
        .context("failed to create the tables of the rejected designs")?;
    let mut both = Vec::new();
    for design in [Design::GuardedCounter, Design::SkipLocked] {
        both.push(Rejected::try_out(testbed, design, callers).await?);
    }
    Ok(both)
}

impl Rejected {
    /// Tries every size of the pool, each in a sector of its own.
    async fn try_out(testbed: &Testbed, design: Design, callers: usize) -> anyhow::Result<Self> {
        let sectors = i32::try_from(POOLS.len()).unwrap_or(i32::MAX);
        design.fill(testbed, sectors).await?;
        let mut tried = BTreeMap::new();
        for (sector, pool) in (1..).zip(POOLS) {
            let outcome = design.measure(testbed, load(pool, callers, TRY), sector).await?;
            tried.insert(pool, outcome.calls_per_second);
        }
        let best = tried.iter().max_by(|one, other| one.1.total_cmp(other.1));
        let pool = best.map_or(POOLS[0], |(pool, _)| *pool);
        Ok(Self { design, pool, tried, measured: Vec::new() })
    }

    /// Measures one round on fresh units.
    pub(crate) async fn measure(
        &mut self,
        testbed: &Testbed,
        callers: usize,
        measured: Duration,
    ) -> anyhow::Result<()> {
        self.design.fill(testbed, 1).await?;
        let load = load(self.pool, callers, measured.min(MEASURED_MAX));
        self.measured.push(self.design.measure(testbed, load, 1).await?);
        Ok(())
    }

    /// Returns the name and the figures, with the ratio to our rates of the same rounds.
    pub(crate) fn to_json(&self, ours: &[f64]) -> (String, Value) {
        let theirs: Vec<f64> = self.measured.iter().map(|outcome| outcome.calls_per_second).collect();
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(ours, theirs)| ratio(*ours, *theirs)).collect();
        let p99: Vec<f64> = self.measured.iter().map(|outcome| crate::report::millis(outcome.p99)).collect();
        let tried = self.tried.iter().map(|(pool, rate)| (pool.to_string(), rate.round()));
        let words = json!({
            "reservations_per_second": median(&theirs).round(),
            "ours_over_theirs": median(&ratios),
            "p99_ms": median(&p99),
            "pool": self.pool,
            "reservations_per_second_by_pool": tried.collect::<BTreeMap<_, _>>(),
        });
        (self.design.name().to_owned(), words)
    }
}

fn load(pool: usize, callers: usize, measured: Duration) -> Load {
    let warm_up = crate::empty::WARM_UP;
    Load { connections: pool, callers_per_connection: callers.div_ceil(pool), measured, warm_up }
}

impl Design {
    fn name(self) -> &'static str {
        match self {
            Self::GuardedCounter => "guarded_counter_row",
            Self::SkipLocked => "skip_locked_from_the_head",
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::GuardedCounter => GUARDED_COUNTER,
            Self::SkipLocked => SKIP_LOCKED,
        }
    }

    /// Writes fresh units, equally many into each sector, and updates the planner's statistics.
    async fn fill(self, testbed: &Testbed, sectors: i32) -> anyhow::Result<()> {
        let failed = "failed to write the units of a rejected design";
        let units = UNITS / sectors;
        testbed.postgres.batch_execute(EMPTY).await.context(failed)?;
        testbed.postgres.execute(FILL_SECTORS, &[&sectors, &units]).await.context(failed)?;
        if matches!(self, Self::SkipLocked) {
            testbed.postgres.execute(FILL_UNITS, &[&sectors, &units]).await.context(failed)?;
        }
        testbed.postgres.batch_execute(ANALYZE).await.context(failed)
    }

    async fn measure(self, testbed: &Testbed, load: Load, sector: i32) -> anyhow::Result<Outcome> {
        let mut tasks = JoinSet::new();
        let mut pool = Vec::new();
        for _ in 0..load.connections {
            let client = connect(&testbed.postgres_url(), &mut tasks).await?;
            let statement = client
                .prepare(self.statement())
                .await
                .context("failed to prepare the statement of a rejected design")?;
            // A connection of a pool belongs to one transaction at a time.
            pool.push(Arc::new(Mutex::new((client, statement))));
        }
        let outcome = load::run_for(load, |connection| {
            let connection = pool.get(connection).cloned();
            move || reserve(connection.clone(), sector)
        })
        .await?;
        Ok(outcome)
    }
}

async fn reserve(connection: Option<Arc<Mutex<(Client, Statement)>>>, sector: i32) -> Result<(), Status> {
    let connection = connection.ok_or_else(|| Status::internal("no such connection"))?;
    let (hold_id, customer_id) = (Uuid::now_v7(), Uuid::new_v4());
    let connection = connection.lock().await;
    let (client, statement) = &*connection;
    let reserved = client.execute(statement, &[&sector, &hold_id, &customer_id]).await;
    match reserved {
        Ok(1) => Ok(()),
        Ok(_) => Err(Status::failed_precondition("a rejected design found no units")),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}
