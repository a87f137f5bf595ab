//! A mail catcher: an SMTP server that stores mails and never forwards them. Mails are listed as JSON and shown on pages over
//! HTTP. Tests can inject the faults of real servers with [`Behaviour`].
//!
//! Each mail is one `.eml` file, which survives a restart and opens in any mail program. The catcher has no authentication
//! and must only listen on addresses that are unreachable from outside.
//!
//! | call | effect |
//! |---|---|
//! | `GET /` | page that lists the newest mails |
//! | `GET /mails/{id}` | page of one mail; its HTML is shown in a sandboxed frame |
//! | `GET /api/mails?to=…&limit=…` | `{"mails": […]}`, newest first; limit 50 by default, at most 500; each a [`Mail`] |
//! | `GET /api/mails/{id}` | one [`Mail`] |
//! | `DELETE /api/mails` | deletes all mails |
//! | `GET`, `POST /sandbox/behaviour` | a [`Behaviour`] as JSON; omitted fields are reset to their defaults |

mod behaviour;
mod command;
mod data;
mod http;
mod line;
mod mailbox;
mod message;
mod smtp;

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use onsale_kit::{error::Chain, tasks::Tasks};
use onsale_types::{Clock, SystemClock};
use tokio::net::TcpListener;

pub use behaviour::Behaviour;
pub use mailbox::{MailboxError, Query};
pub use message::{Header, Mail, Picture};
use {behaviour::FaultInjector, mailbox::Mailbox, smtp::Limits};

/// Longest wait for open connections in [`Catcher::stop`].
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a catcher. [`Config::new`] has defaults for everything except the folder.
#[derive(Clone)]
pub struct Config {
    /// Listening address for SMTP. Port 0 picks a free port.
    pub smtp_listen: SocketAddr,
    /// Listening address for HTTP. Port 0 picks a free port.
    pub http_listen: SocketAddr,
    /// Folder of the mails, created if missing. Only one catcher may use it.
    pub folder: PathBuf,
    /// Maximum number of stored mails (default 10,000). The oldest are deleted first.
    pub mails_max: usize,
    /// Maximum size of one mail (default 4 MiB).
    pub mail_bytes_max: usize,
    /// Maximum number of SMTP connections (default 256).
    pub connections_max: usize,
    /// Timeout of one command and of one reply (default 60 s).
    pub command_timeout: Duration,
    /// Timeout for the text of one mail (default 120 s).
    pub data_timeout: Duration,
    /// Time source for the arrival times of mails.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// Returns settings for free loopback ports and the given folder.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let free = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            smtp_listen: free,
            http_listen: free,
            folder: folder.into(),
            mails_max: 10_000,
            mail_bytes_max: 4 * 1024 * 1024,
            connections_max: 256,
            command_timeout: Duration::from_secs(60),
            data_timeout: Duration::from_secs(120),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Reasons for a failed start of a [`Catcher`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be bound.
    #[error("failed to listen on {address}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be created or read.
    #[error("failed to open the mail folder")]
    Mailbox(#[source] MailboxError),
}

/// A running mail catcher. Dropping it does not stop it; call [`Catcher::stop`].
pub struct Catcher {
    smtp_address: SocketAddr,
    http_address: SocketAddr,
    mailbox: Arc<Mailbox>,
    faults: FaultInjector,
    tasks: Tasks,
}

impl Catcher {
    /// Indexes the mails in the folder and starts to listen.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let mailbox = Mailbox::open(config.folder, config.mails_max, config.clock);
        let mailbox = Arc::new(mailbox.await.map_err(StartError::Mailbox)?);
        let (smtp, smtp_address) = listen(config.smtp_listen).await?;
        let (web, http_address) = listen(config.http_listen).await?;
        let (tasks, faults) = (Tasks::new(), FaultInjector::default());
        let limits = Limits {
            mail_bytes_max: config.mail_bytes_max,
            connections_max: config.connections_max,
            command_timeout: config.command_timeout,
            data_timeout: config.data_timeout,
        };
        let server = smtp::Server::new(Arc::clone(&mailbox), faults.clone(), limits);
        tasks.spawn("smtp", server.run(smtp, tasks.clone()));
        let router = http::router(Arc::clone(&mailbox), faults.clone());
        let stopped = tasks.token().cancelled_owned();
        tasks.spawn("mail pages", async move {
            if let Err(error) = axum::serve(web, router).with_graceful_shutdown(stopped).await {
                tracing::error!(error = %Chain(&error), "mail catcher stopped serving http");
            }
        });
        tracing::info!(%smtp_address, %http_address, mails = mailbox.count(), "mail catcher is listening");
        Ok(Self { smtp_address, http_address, mailbox, faults, tasks })
    }

    /// Returns the bound SMTP address.
    #[must_use]
    pub fn smtp_address(&self) -> SocketAddr {
        self.smtp_address
    }

    /// Returns the bound HTTP address.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Returns the mails that match `query`, newest first.
    pub async fn mails(&self, query: &Query) -> Result<Vec<Mail>, MailboxError> {
        self.mailbox.list(query).await
    }

    /// Replaces the injected faults.
    pub fn behave(&self, behaviour: Behaviour) {
        self.faults.set(behaviour);
    }

    /// Stops listening and closes all connections within 5 s. Stored mails remain in the folder.
    pub async fn stop(self) {
        self.tasks.shutdown(SHUTDOWN_TIMEOUT).await;
    }
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}
