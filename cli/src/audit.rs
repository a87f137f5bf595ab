//! `onsale audit` checks every cross-service invariant in one repeatable-read snapshot of all schemas, compares Redis with it,
//! and reports each violation.

mod cache;
mod rules;
#[cfg(test)]
mod tests;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use onsale_kit::deadline::Deadline;
use onsale_storage::{
    migrate,
    redis::{Redis, RedisConfig},
};
use tokio::time::sleep;
use tokio_postgres::{Client, IsolationLevel, NoTls};

use crate::mesh::manifest::Manifest;

use self::rules::{CLAIMS, QUOTAS, RULES, Rule, When, event_rules};

/// Interval between two checks while a sale has not settled.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Most violating rows that are counted for one rule, and most that are printed.
const COUNTED_MAX: usize = 1_000;
const SHOWN_MAX: usize = 5;

/// Arguments of `onsale audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// URL of the database [default: that of the mesh in --directory]
    #[arg(long, env = "ONSALE__STORES__POSTGRES__URL", hide_env_values = true)]
    postgres_url: Option<String>,
    /// Nodes of the Redis Cluster, as redis://host:port [default: those of the mesh in --directory]
    #[arg(long, value_delimiter = ',')]
    redis: Vec<String>,
    /// Folder of the mesh
    #[arg(long, default_value = crate::mesh::DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Seconds to wait for work in progress, such as unprocessed events and payments without tickets, before it is reported
    #[arg(long, default_value_t = 60)]
    wait: u64,
}

#[derive(Debug)]
struct Violation {
    invariant: u8,
    statement: &'static str,
    when: When,
    offenders: Vec<String>,
}

/// Runs the audit. Exits with 1 if a rule is violated.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (url, nodes) = match (arguments.postgres_url, arguments.redis) {
        (Some(url), nodes) if !nodes.is_empty() => (url, nodes),
        (url, nodes) => {
            let manifest = Manifest::read(&arguments.directory).context(
                "no mesh is running here: start one with `make up`, or give --postgres-url and --redis",
            )?;
            let nodes = if nodes.is_empty() { manifest.endpoints.redis } else { nodes };
            (url.unwrap_or(manifest.endpoints.postgres), nodes)
        }
    };
    let (mut client, connection) =
        tokio_postgres::connect(&url, NoTls).await.context("failed to connect to Postgres")?;
    let redis =
        Redis::connect(&RedisConfig::new(nodes, "onsale")).await.context("failed to connect to Redis")?;
    let audit = async {
        let violations =
            check_until_settled(&mut client, &redis, Deadline::after(Duration::from_secs(arguments.wait)))
                .await?;
        Ok(report(&violations))
    };
    tokio::select! {
        audited = audit => audited,
        lost = connection => {
            lost.context("the connection to Postgres broke")?;
            anyhow::bail!("the connection to Postgres ended")
        }
    }
}

/// Repeats the check until no rule is violated, an [`When::Always`] rule is violated, or the deadline passes.
async fn check_until_settled(
    client: &mut Client,
    redis: &Redis,
    deadline: Deadline,
) -> anyhow::Result<Vec<Violation>> {
    loop {
        let violations = check_once(client, redis).await?;
        let broken = violations.iter().any(|violation| violation.when == When::Always);
        if violations.is_empty() || broken || deadline.is_past() {
            return Ok(violations);
        }
        sleep(RECHECK_INTERVAL).await;
    }
}

/// Runs the query of every rule in one snapshot and compares Redis with it.
async fn check_once(client: &mut Client, redis: &Redis) -> anyhow::Result<Vec<Violation>> {
    #[expect(clippy::disallowed_methods, reason = "a read-only snapshot over all schemas is never retried")]
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let transaction = transaction.start().await.context("failed to begin the snapshot")?;
    let mut violations = Vec::new();
    for (rule, sql) in queries() {
        let rows = transaction
            .query(&sql, &[])
            .await
            .with_context(|| format!("failed to check: {}", rule.statement))?;
        let offenders = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        if !offenders.is_empty() {
            violations.push(Violation {
                invariant: rule.invariant,
                statement: rule.statement,
                when: rule.when,
                offenders,
            });
        }
    }
    for (invariant, statement, offender) in cache::differences(&transaction, redis).await? {
        violations.push(Violation { invariant, statement, when: When::Settled, offenders: vec![offender] });
    }
    Ok(violations)
}

/// Returns every rule with its query: the rules about data of services, and the event rules for each schema.
fn queries() -> Vec<(Rule, String)> {
    let rules = RULES.iter().chain(CLAIMS).chain(QUOTAS);
    let service_rules = rules.map(|rule| (*rule, rule.sql.to_owned()));
    let all = service_rules.chain(migrate::schemas().into_iter().flat_map(event_rules));
    all.map(|(rule, sql)| (rule, format!("SELECT * FROM ({sql}) AS offender LIMIT {COUNTED_MAX}"))).collect()
}

fn report(violations: &[Violation]) -> ExitCode {
    if violations.is_empty() {
        println!("audit: {} rules hold, and Redis agrees with Postgres", queries().len());
        return ExitCode::SUCCESS;
    }
    for violation in violations {
        let when = match violation.when {
            When::Always => "violated",
            When::Settled => "not met in time",
        };
        println!(
            "{when}: {} (invariant {}): {}",
            violation.statement,
            violation.invariant,
            violation.offenders.len()
        );
        for offender in violation.offenders.iter().take(SHOWN_MAX) {
            println!("  {offender}");
        }
    }
    println!("audit: {} rules are violated", violations.len());
    ExitCode::FAILURE
}
