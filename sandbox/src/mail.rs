//! A mail server that catches mail: a real SMTP server whose mails go nowhere. What arrived is listed over HTTP and shown
//! on a page. It can be told to misbehave as real servers do.
//!
//! Mails are kept as one `.eml` file each, so that a restart keeps what arrived and any mail program opens them. It has no
//! password and must only listen where strangers do not come.
//!
//! | call | what |
//! |---|---|
//! | `GET /` | a page that lists the newest mails |
//! | `GET /mails/{id}` | a page that shows one; its HTML in a frame that may do nothing |
//! | `GET /api/mails?to=…&limit=…` | `{"mails": […]}`, newest first; at most 500 (50 unless asked), each a [`Mail`] |
//! | `GET /api/mails/{id}` | one [`Mail`] |
//! | `DELETE /api/mails` | forgets all |
//! | `GET`, `POST /sandbox/behaviour` | a [`Behaviour`] as JSON; what is left out goes back to normal |

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

/// How long a stopping catcher waits for its connections.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// What a catcher needs to know. [`Config::new`] has sensible values for all but the folder.
#[derive(Clone)]
pub struct Config {
    /// Where SMTP listens; port 0 takes a free one.
    pub smtp_listen: SocketAddr,
    /// Where the list and the pages are; port 0 takes a free one.
    pub http_listen: SocketAddr,
    /// Where mails are kept; made when missing. It belongs to the catcher alone.
    pub folder: PathBuf,
    /// How many mails are kept; the oldest give way.
    pub mails_max: usize,
    /// The largest mail that is taken.
    pub mail_bytes_max: usize,
    /// How many SMTP connections there may be at once.
    pub connections_max: usize,
    /// How long a client may take for one command.
    pub command_timeout: Duration,
    /// How long a client may take for one mail.
    pub data_timeout: Duration,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    /// A catcher on free ports of loopback that keeps its mails in `folder`.
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

/// Why a catcher could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port cannot be had.
    #[error("failed to listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder cannot be used.
    #[error("failed to open the folder of mails")]
    Mailbox(#[source] MailboxError),
}

/// A running catcher. Dropping it does not stop it: [`Catcher::stop`] does.
pub struct Catcher {
    smtp_address: SocketAddr,
    http_address: SocketAddr,
    mailbox: Arc<Mailbox>,
    faults: FaultInjector,
    tasks: Tasks,
}

impl Catcher {
    /// Reads what is in the folder and begins to listen.
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
                tracing::error!(error = %Chain(&error), "mail pages ended");
            }
        });
        tracing::info!(%smtp_address, %http_address, mails = mailbox.count(), "mail catcher listens");
        Ok(Self { smtp_address, http_address, mailbox, faults, tasks })
    }

    /// Where mail is to be sent.
    #[must_use]
    pub fn smtp_address(&self) -> SocketAddr {
        self.smtp_address
    }

    /// Where the list and the pages are.
    #[must_use]
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// The mails that fit `query`, newest first.
    pub async fn mails(&self, query: &Query) -> Result<Vec<Mail>, MailboxError> {
        self.mailbox.list(query).await
    }

    /// Misbehaves as `behaviour` says, from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.faults.set(behaviour);
    }

    /// Stops listening, ends every connection and gives the ports back. What arrived stays in the folder.
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
