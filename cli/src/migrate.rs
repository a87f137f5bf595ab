//! `onsale migrate` applies pending migrations. It may run at any time, also several times at once: a lock serializes it.

use anyhow::Context;
use onsale_storage::{migrate, postgres::PostgresConfig};

use crate::output;

/// Arguments of `onsale migrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Database to migrate, as postgres://user:password@host:port/database
    #[arg(long, env = "ONSALE__STORES__POSTGRES__URL", hide_env_values = true)]
    postgres_url: String,
    /// Schema to migrate [default: all]
    #[arg(long)]
    schema: Option<String>,
    /// Lists the pending migrations without applying them
    #[arg(long)]
    dry_run: bool,
}

/// Applies or, with `--dry-run`, lists the pending migrations of each schema.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let known = migrate::schemas();
    let chosen: Vec<&str> = match arguments.schema.as_deref() {
        Some(schema) if known.contains(&schema) => vec![schema],
        Some(schema) => anyhow::bail!("unknown schema {schema:?}; known are {}", known.join(", ")),
        None => known,
    };
    for schema in chosen {
        let config = PostgresConfig::new(&arguments.postgres_url, schema);
        let (files, verb) = if arguments.dry_run {
            (migrate::pending(&config).await, "to apply")
        } else {
            (migrate::run(&config).await, "applied")
        };
        let files = files.with_context(|| format!("failed to migrate schema {schema}"))?;
        match files.as_slice() {
            [] => output::say(format_args!("{schema}: up to date")),
            files => output::say(format_args!("{schema}: {verb} {}", files.join(", "))),
        }
    }
    Ok(())
}
