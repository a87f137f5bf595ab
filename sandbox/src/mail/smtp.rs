//! SMTP server: accepts connections and runs one session on each. Every wait has a timeout and every line a maximum length.

use std::{io, sync::Arc, time::Duration};

use onsale_kit::{error::Chain, tasks::Tasks};
use tokio::{
    io::{AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::{
    behaviour::FaultInjector,
    command::Command,
    data::{Data, read_data},
    line::{Line, read_line},
    mailbox::{Envelope, Mailbox},
};

/// Longest command line with its line end: 512 bytes by RFC 5321 plus room for extensions.
const COMMAND_BYTES_MAX: usize = 2_048;
/// Number of client errors after which the session is closed.
const ERRORS_MAX: u32 = 20;
/// Maximum number of recipients per mail.
const RECIPIENTS_MAX: usize = 100;
/// Pause after a failed accept, for example when the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Limits of the server; [`Config`](super::Config) describes each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) mail_bytes_max: usize,
    pub(super) connections_max: usize,
    pub(super) command_timeout: Duration,
    pub(super) data_timeout: Duration,
}

/// State shared by all connections.
#[derive(Clone)]
pub(super) struct Server {
    mailbox: Arc<Mailbox>,
    faults: FaultInjector,
    limits: Limits,
}

impl Server {
    pub(super) fn new(mailbox: Arc<Mailbox>, faults: FaultInjector, limits: Limits) -> Self {
        Self { mailbox, faults, limits }
    }

    /// Accepts connections until `tasks` shut down. Connections over the limit receive a 421.
    pub(super) async fn run(self, listener: TcpListener, tasks: Tasks) {
        let permits = Arc::new(Semaphore::new(self.limits.connections_max));
        loop {
            let accepted = tokio::select! {
                () = tasks.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((mut stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                let _ = stream.try_write(b"421 too many connections\r\n");
                let _ = stream.shutdown().await;
                continue;
            };
            let (server, token) = (self.clone(), tasks.token());
            tasks.spawn("smtp connection", async move {
                let _permit = permit;
                tokio::select! {
                    () = token.cancelled() => {}
                    ended = server.run_session(stream) => if let Err(error) = ended {
                        tracing::debug!(error = %Chain(&error), "smtp connection failed");
                    },
                }
            });
        }
    }

    async fn run_session(&self, stream: TcpStream) -> io::Result<()> {
        let mut session = Session { server: self, stream: BufStream::new(stream), envelope: None, errors: 0 };
        session.reply("220 onsale mail catcher").await?;
        while session.handle_command().await? == Next::Command {}
        session.stream.shutdown().await
    }
}

/// Action after a command: read the next one, or close the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Command,
    Close,
}

/// The session of one client.
struct Session<'a> {
    server: &'a Server,
    stream: BufStream<TcpStream>,
    /// Envelope of the current mail. `None` before MAIL FROM.
    envelope: Option<Envelope>,
    errors: u32,
}

impl Session<'_> {
    /// Reads one command and sends its reply.
    async fn handle_command(&mut self) -> io::Result<Next> {
        let limits = self.server.limits;
        let received = timeout(limits.command_timeout, read_line(&mut self.stream, COMMAND_BYTES_MAX)).await;
        let line = match received {
            Ok(line) => line?,
            Err(_) => {
                self.reply("421 timed out waiting for the client").await?;
                return Ok(Next::Close);
            }
        };
        let command = match line {
            Line::Read(line) => Command::parse(&line),
            Line::TooLong => return self.reply_error("500 line too long").await,
            Line::Eof => return Ok(Next::Close),
        };
        match command {
            Command::Hello { is_extended } => self.hello(is_extended).await,
            Command::Mail { from, size } => self.start_mail(from, size).await,
            Command::Recipient { to } => self.add_recipient(to).await,
            Command::Data => self.receive_mail().await,
            Command::Reset => {
                self.envelope = None;
                self.reply_and_continue("250 reset").await
            }
            Command::Noop => self.reply_and_continue("250 OK").await,
            Command::Verify => self.reply_and_continue("252 cannot verify, will accept mail").await,
            Command::Quit => {
                self.reply("221 closing connection").await?;
                Ok(Next::Close)
            }
            Command::Malformed(why) => self.reply_error(&format!("501 {why}")).await,
            Command::Unknown => self.reply_error("500 unknown command").await,
        }
    }

    async fn hello(&mut self, is_extended: bool) -> io::Result<Next> {
        self.envelope = None;
        if !is_extended {
            return self.reply_and_continue("250 hello").await;
        }
        let size = self.server.limits.mail_bytes_max;
        self.reply_and_continue(&format!(
            "250-hello\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE {size}"
        ))
        .await
    }

    async fn start_mail(&mut self, from: String, size: Option<usize>) -> io::Result<Next> {
        if self.envelope.is_some() {
            return self.reply_error("503 a mail is already in progress").await;
        }
        if size.is_some_and(|size| size > self.server.limits.mail_bytes_max) {
            return self.reply_and_continue("552 mail exceeds the size limit").await;
        }
        if self.server.faults.consume_rejection() {
            return self.reply_and_continue("451 injected fault: mail rejected").await;
        }
        self.envelope = Some(Envelope { from, to: Vec::new() });
        self.reply_and_continue("250 OK").await
    }

    async fn add_recipient(&mut self, to: String) -> io::Result<Next> {
        let text = match &mut self.envelope {
            None => return self.reply_error("503 expected MAIL FROM first").await,
            Some(envelope) if envelope.to.len() >= RECIPIENTS_MAX => "452 too many recipients",
            Some(envelope) => {
                envelope.to.push(to);
                "250 OK"
            }
        };
        self.reply_and_continue(text).await
    }

    async fn receive_mail(&mut self) -> io::Result<Next> {
        let Some(envelope) = self.envelope.take_if(|envelope| !envelope.to.is_empty()) else {
            return self.reply_error("503 expected RCPT TO first").await;
        };
        self.reply("354 end the mail with a line that contains only a dot").await?;
        let limits = self.server.limits;
        let data = timeout(limits.data_timeout, read_data(&mut self.stream, limits.mail_bytes_max)).await;
        let mail = match data {
            Ok(data) => match data? {
                Data::Whole(mail) => mail,
                Data::TooLarge => return self.reply_and_continue("552 mail exceeds the size limit").await,
                Data::Incomplete => return Ok(Next::Close),
            },
            Err(_) => {
                self.reply("421 timed out waiting for the client").await?;
                return Ok(Next::Close);
            }
        };
        let stored = self.server.mailbox.store(envelope, &mail).await;
        if self.server.faults.consume_close_after_data() {
            return Ok(Next::Close);
        }
        match stored {
            Ok(id) => self.reply_and_continue(&format!("250 kept as {id}")).await,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "failed to store a mail, replying 451");
                self.reply_and_continue("451 failed to store the mail").await
            }
        }
    }

    async fn reply_and_continue(&mut self, text: &str) -> io::Result<Next> {
        self.reply(text).await?;
        Ok(Next::Command)
    }

    async fn reply_error(&mut self, text: &str) -> io::Result<Next> {
        self.errors += 1;
        if self.errors >= ERRORS_MAX {
            self.reply("421 too many errors").await?;
            return Ok(Next::Close);
        }
        self.reply_and_continue(text).await
    }

    /// Sends one reply. Fails with `TimedOut` if the client does not read it within the command timeout.
    async fn reply(&mut self, text: &str) -> io::Result<()> {
        let sent = async {
            self.stream.write_all(text.as_bytes()).await?;
            self.stream.write_all(b"\r\n").await?;
            self.stream.flush().await
        };
        let bounded = timeout(self.server.limits.command_timeout, sent).await;
        bounded.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
