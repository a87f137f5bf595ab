//! The SMTP side: connections, and the session on each. Every wait and every line has a bound.

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

/// A command line may be so long, its end included: the standard's 512 and room for extensions.
const COMMAND_BYTES_MAX: usize = 2_048;
/// So many errors and the session is over.
const ERRORS_MAX: u32 = 20;
/// One mail goes to so many at most.
const RECIPIENTS_MAX: usize = 100;
/// Between two tries to accept, when the system has no more connections to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bounds of every connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) mail_bytes_max: usize,
    pub(super) connections_max: usize,
    pub(super) command_timeout: Duration,
    pub(super) data_timeout: Duration,
}

/// What all connections share.
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

    /// Takes connections until `tasks` are asked to end.
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
                        tracing::debug!(error = %Chain(&error), "smtp connection broke");
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

/// Whether the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Command,
    Close,
}

/// One client.
struct Session<'a> {
    server: &'a Server,
    stream: BufStream<TcpStream>,
    /// The mail partial with MAIL FROM.
    envelope: Option<Envelope>,
    errors: u32,
}

impl Session<'_> {
    /// Hears one command and answers it.
    async fn handle_command(&mut self) -> io::Result<Next> {
        let limits = self.server.limits;
        let received = timeout(limits.command_timeout, read_line(&mut self.stream, COMMAND_BYTES_MAX)).await;
        let line = match received {
            Ok(line) => line?,
            Err(_) => {
                self.reply("421 you are too slow").await?;
                return Ok(Next::Close);
            }
        };
        let command = match line {
            Line::Read(line) => Command::parse(&line),
            Line::TooLong => return self.reply_error("500 the line is too long").await,
            Line::Eof => return Ok(Next::Close),
        };
        match command {
            Command::Hello { is_extended } => self.hello(is_extended).await,
            Command::Mail { from, size } => self.start_mail(from, size).await,
            Command::Recipient { to } => self.add_recipient(to).await,
            Command::Data => self.receive_mail().await,
            Command::Reset => {
                self.envelope = None;
                self.reply_and_continue("250 forgotten").await
            }
            Command::Noop => self.reply_and_continue("250 fine").await,
            Command::Verify => self.reply_and_continue("252 send it and see").await,
            Command::Quit => {
                self.reply("221 goodbye").await?;
                Ok(Next::Close)
            }
            Command::Malformed(why) => self.reply_error(&format!("501 {why}")).await,
            Command::Unknown => self.reply_error("500 no such command").await,
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
            return self.reply_error("503 one mail at a time").await;
        }
        if size.is_some_and(|size| size > self.server.limits.mail_bytes_max) {
            return self.reply_and_continue("552 the mail is too large").await;
        }
        if self.server.faults.consume_rejection() {
            return self.reply_and_continue("451 told to refuse this mail").await;
        }
        self.envelope = Some(Envelope { from, to: Vec::new() });
        self.reply_and_continue("250 go on").await
    }

    async fn add_recipient(&mut self, to: String) -> io::Result<Next> {
        let text = match &mut self.envelope {
            None => return self.reply_error("503 first say who sends").await,
            Some(envelope) if envelope.to.len() >= RECIPIENTS_MAX => "452 too many recipients",
            Some(envelope) => {
                envelope.to.push(to);
                "250 go on"
            }
        };
        self.reply_and_continue(text).await
    }

    async fn receive_mail(&mut self) -> io::Result<Next> {
        let Some(envelope) = self.envelope.take_if(|envelope| !envelope.to.is_empty()) else {
            return self.reply_error("503 first say who gets it").await;
        };
        self.reply("354 end with a lone dot").await?;
        let limits = self.server.limits;
        let data = timeout(limits.data_timeout, read_data(&mut self.stream, limits.mail_bytes_max)).await;
        let mail = match data {
            Ok(data) => match data? {
                Data::Whole(mail) => mail,
                Data::TooLarge => return self.reply_and_continue("552 the mail is too large").await,
                Data::Incomplete => return Ok(Next::Close),
            },
            Err(_) => {
                self.reply("421 you are too slow").await?;
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
                tracing::error!(error = %Chain(&error), "failed to keep a mail");
                self.reply_and_continue("451 the mail could not be kept").await
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

    /// Sends an text; a client that does not read it is as slow as one that does not speak.
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
