//! How to reach Postgres, and the limits of every use of it.

use std::time::Duration;

use onsale_kit::config::Secret;
use serde::Deserialize;

use super::Error;

/// The settings of one service's pool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database`; secret for the password in it.
    pub url: Secret,
    /// The schema all names are looked up in: the service's own.
    pub schema: String,
    /// Shown by Postgres beside each session.
    pub application_name: String,
    /// The most connections this process opens.
    pub pool_max: usize,
    /// How long a caller waits for one of them.
    #[serde(with = "humantime_serde")]
    pub acquire_timeout: Duration,
    /// How long a new connection may take.
    #[serde(with = "humantime_serde")]
    pub connect_timeout: Duration,
    /// How long a statement or a whole transaction, its repetitions included, may take where no call's deadline says
    /// it.
    #[serde(with = "humantime_serde")]
    pub call_timeout: Duration,
    /// How long Postgres lets one statement run.
    #[serde(with = "humantime_serde")]
    pub statement_timeout: Duration,
    /// How long a statement waits for another's lock.
    #[serde(with = "humantime_serde")]
    pub lock_timeout: Duration,
    /// After how long Postgres ends a session that holds a transaction open and does nothing.
    #[serde(with = "humantime_serde")]
    pub idle_in_transaction_timeout: Duration,
}

impl PostgresConfig {
    /// The usual limits for `schema` of the database at `url`.
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

    /// Refuses what could only fail later, or would mean "no limit" to Postgres.
    pub fn validate(&self) -> Result<(), Error> {
        if !is_plain_name(&self.schema) {
            return Err(Error::Schema { schema: self.schema.clone() });
        }
        if self.pool_max == 0 {
            return Err(Error::Config { message: "pool_max is 0" });
        }
        let waits = [self.acquire_timeout, self.connect_timeout, self.call_timeout];
        let limits = [self.statement_timeout, self.lock_timeout, self.idle_in_transaction_timeout];
        if waits.into_iter().chain(limits).any(|span| span < Duration::from_millis(1)) {
            return Err(Error::Config { message: "a timeout is below 1ms" });
        }
        Ok(())
    }

    /// What the driver needs. The limits go with the connection request, so that a session never exists without them.
    pub(crate) fn connection(&self) -> Result<tokio_postgres::Config, Error> {
        self.validate()?;
        let mut config: tokio_postgres::Config =
            // The driver's message may quote the URL, and with it the password.
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

/// Names that need no quoting anywhere, so that none is ever forgotten.
pub(crate) fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.len() <= 63
        && name.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '_')
}
