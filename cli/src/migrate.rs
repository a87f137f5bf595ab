//! `onsale migrate`: brings the schemas up to date before the services start. Safe to run at any time, by several at once.

use anyhow::Context;
use onsale_storage::{migrate, postgres::PostgresConfig};

use crate::output;

/// Arguments of `onsale migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The database: postgres://user:password@host:port/database
    #[arg(long, env = "ONSALE__STORES__POSTGRES__URL", hide_env_values = true)]
    postgres_url: String,
    /// Only this schema; all of them when left out.
    #[arg(long)]
    schema: Option<String>,
    /// Only say what would be applied.
    #[arg(long)]
    dry_run: bool,
}

/// Migrates, or says what would be.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let known = migrate::schemas();
    let chosen: Vec<&str> = match arguments.schema.as_deref() {
        Some(schema) if known.contains(&schema) => vec![schema],
        Some(schema) => anyhow::bail!("there is no schema {schema:?}; there are {}", known.join(", ")),
        None => known,
    };
    for schema in chosen {
        let config = PostgresConfig::new(&arguments.postgres_url, schema);
        let (files, verb) = if arguments.dry_run {
            (migrate::pending(&config).await, "to apply")
        } else {
            (migrate::run(&config).await, "applied")
        };
        let files = files.with_context(|| format!("schema {schema}"))?;
        match files.as_slice() {
            [] => output::say(format_args!("{schema}: up to date")),
            files => output::say(format_args!("{schema}: {verb} {}", files.join(", "))),
        }
    }
    Ok(())
}
