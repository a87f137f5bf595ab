//! Settings of the Postgres client, and limits of every statement.

use std::time::Duration;

use onsale_kit::config::Secret;
use serde::Deserialize;

use super::Error;

/// Connection, pool and timeouts of one service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresConfig {
    /// Connection string `postgres://user:password@host:port/database`. Secret because of the password.
    pub url: Secret,
    /// The service's schema, in which all table names are resolved.
    pub schema: String,
    /// Name of the sessions in `pg_stat_activity`.
    pub application_name: String,
    /// Maximum number of connections of this process.
    pub pool_max: usize,
    /// Maximum wait of a caller for a free connection.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,
    /// Maximum duration of opening a connection.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// Maximum duration of a statement, or of a transaction with its retries, if the call has no deadline.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// Maximum duration of one statement, enforced by Postgres.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// Maximum wait of a statement for a lock, enforced by Postgres.
    #[serde(with = "humantime_serde")]
    pub lock_timeout: Duration,
    /// Idle time after which Postgres ends a session with an open transaction.
    #[serde(with = "humantime_serde")]
    pub idle_in_transaction_timeout: Duration,
}

impl PostgresConfig {
    /// Creates settings with the default limits for `schema` of the database at `url`.
    #[must_use]
    pub fn new(url: &str, schema: &str) -> Self {
        Self {
            url: Secret::new(url),
            schema: schema.to_owned(),
            application_name: schema.to_owned(),
            pool_max: 16,
            acquire_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(3),
            call_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(5),
            lock_timeout: Duration::from_secs(3),
            idle_in_transaction_timeout: Duration::from_secs(10),
        }
    }

    /// Refuses a schema name that needs quoting, an empty pool, and timeouts below 1 ms, because Postgres reads 0 as
    /// "no limit".
    pub fn validate(&self) -> Result<(), Error> {
        if !is_plain_name(&self.schema) {
            return Err(Error::Schema { schema: self.schema.clone() });
        }
        if self.pool_max == 0 {
            return Err(Error::Config { message: "pool_max must not be 0" });
        }
        let waits = [self.acquire_timeout, self.connect_timeout, self.call_timeout];
        let limits = [self.statement_timeout, self.lock_timeout, self.idle_in_transaction_timeout];
        if waits.into_iter().chain(limits).any(|span| span < Duration::from_millis(1)) {
            return Err(Error::Config { message: "timeouts must be at least 1 ms" });
        }
        Ok(())
    }

    /// Returns the driver's settings. The limits are part of the connection request, so no session exists without them.
    pub(crate) fn connection(&self) -> Result<tokio_postgres::Config, Error> {
        self.validate()?;
        let mut config: tokio_postgres::Config =
            // The driver's message may quote the URL with its password.
            self.url.expose().parse().map_err(|_unprintable| Error::Url)?;
        config.application_name(&self.application_name);
        config.connect_timeout(self.connect_timeout);
        config.options(format!(
            "-c search_path={} -c statement_timeout={} -c lock_timeout={} -c idle_in_transaction_session_timeout={}",
            self.schema,
            self.statement_timeout.as_millis(),
            self.lock_timeout.as_millis(),
            self.idle_in_transaction_timeout.as_millis(),
        ));
        Ok(config)
    }
}

/// Returns true for names that need no quoting in SQL.
pub(crate) fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.len() <= 63
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
}
