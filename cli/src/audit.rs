//! `onsale audit`: reads all books, in one snapshot, and says whether what must always hold does.

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

use self::rules::{CLAIMS, QUOTAS, RULES, Rule, When, in_transit};

/// How often an unsettled sale is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The most offenders counted for one rule, and the most shown.
const COUNTED_MAX: usize = 1_000;
const SHOWN_MAX: usize = 5;

/// Arguments of `onsale audit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The database. Unset: of the mesh that `onsale up` started.
    #[arg(long, env = "ONSALE__STORES__POSTGRES__URL", hide_env_values = true)]
    postgres_url: Option<String>,
    /// Nodes of the Redis Cluster, as redis://host:port. Unset: of that mesh.
    #[arg(long, value_delimiter = ',')]
    redis: Vec<String>,
    /// Folder of that mesh.
    #[arg(long, default_value = crate::mesh::DIRECTORY_DEFAULT)]
    directory: PathBuf,
    /// Seconds that what is under way gets to end: payments on their way to tickets, events on their way.
    #[arg(long, default_value_t = 60)]
    wait: u64,
}

/// One broken rule.
#[derive(Debug)]
struct Finding {
    invariant: u8,
    says: &'static str,
    when: When,
    offenders: Vec<String>,
}

/// Audits. Non-zero when something does not hold.
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
        tokio_postgres::connect(&url, NoTls).await.context("failed to reach Postgres")?;
    let redis = Redis::connect(&RedisConfig::new(nodes, "onsale")).await.context("failed to reach Redis")?;
    let audit = async {
        let findings =
            settle(&mut client, &redis, Deadline::after(Duration::from_secs(arguments.wait))).await?;
        Ok(report(&findings))
    };
    tokio::select! {
        audited = audit => audited,
        lost = connection => {
            lost.context("the connection to Postgres broke")?;
            anyhow::bail!("the connection to Postgres ended")
        }
    }
}

/// Looks until nothing is under way any more, something is broken for good, or the time is over.
async fn settle(client: &mut Client, redis: &Redis, deadline: Deadline) -> anyhow::Result<Vec<Finding>> {
    loop {
        let findings = examine(client, redis).await?;
        let broken = findings.iter().any(|finding| finding.when == When::Always);
        if findings.is_empty() || broken || deadline.is_past() {
            return Ok(findings);
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Asks every rule, in one snapshot.
async fn examine(client: &mut Client, redis: &Redis) -> anyhow::Result<Vec<Finding>> {
    #[expect(
        clippy::disallowed_methods,
        reason = "reads only, over all schemas, and in one snapshot: nothing to repeat"
    )]
    let transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true);
    let transaction = transaction.start().await.context("failed to begin")?;
    let mut findings = Vec::new();
    for (rule, sql) in questions() {
        let rows =
            transaction.query(&sql, &[]).await.with_context(|| format!("failed to ask: {}", rule.says))?;
        let offenders = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        if !offenders.is_empty() {
            findings.push(Finding { invariant: rule.invariant, says: rule.says, when: rule.when, offenders });
        }
    }
    for (invariant, says, offender) in cache::differences(&transaction, redis).await? {
        findings.push(Finding { invariant, says, when: When::Settled, offenders: vec![offender] });
    }
    Ok(findings)
}

/// Every rule with its question: those of the books, and those of the events of each schema.
fn questions() -> Vec<(Rule, String)> {
    let rules = RULES.iter().chain(CLAIMS).chain(QUOTAS);
    let books = rules.map(|rule| (*rule, rule.sql.to_owned()));
    let all = books.chain(migrate::schemas().into_iter().flat_map(in_transit));
    all.map(|(rule, sql)| (rule, format!("SELECT * FROM ({sql}) AS offender LIMIT {COUNTED_MAX}"))).collect()
}

fn report(findings: &[Finding]) -> ExitCode {
    if findings.is_empty() {
        println!("audit: {} rules hold, and Redis agrees with Postgres", questions().len());
        return ExitCode::SUCCESS;
    }
    for finding in findings {
        let when = match finding.when {
            When::Always => "broken",
            When::Settled => "still not so",
        };
        println!("{when}: {} (invariant {}): {}", finding.says, finding.invariant, finding.offenders.len());
        for offender in finding.offenders.iter().take(SHOWN_MAX) {
            println!("  {offender}");
        }
    }
    println!("audit: {} of the rules do not hold", findings.len());
    ExitCode::FAILURE
}
