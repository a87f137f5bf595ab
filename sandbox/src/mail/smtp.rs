//! The SMTP side: connections, and the conversation on each. Every wait and every line has a bound.

use std::{io, sync::Arc, time::Duration};

use onsale_kit::{error::Chain, tasks::Tasks};
use tokio::{
    io::{AsyncWriteExt, BufStream},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

use super::{
    behaviour::Switchboard,
    command::Command,
    data::{Data, read_data},
    line::{Line, read_line},
    mailbox::{Envelope, Mailbox},
};

/// A command line may be so long, its end included: the standard's 512 and room for extensions.
const COMMAND_BYTES_MAX: usize = 2_048;
/// So many mistakes and the conversation is over.
const MISTAKES_MAX: u32 = 20;
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
    switchboard: Switchboard,
    limits: Limits,
}

impl Server {
    pub(super) fn new(mailbox: Arc<Mailbox>, switchboard: Switchboard, limits: Limits) -> Self {
        Self { mailbox, switchboard, limits }
    }

    /// Takes connections until `tasks` are asked to end.
    pub(super) async fn run(self, listener: TcpListener, tasks: Tasks) {
        let places = Arc::new(Semaphore::new(self.limits.connections_max));
        loop {
            let accepted = tokio::select! {
                () = tasks.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((mut stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                let _ = stream.try_write(b"421 too many connections\r\n");
                let _ = stream.shutdown().await;
                continue;
            };
            let (server, token) = (self.clone(), tasks.token());
            tasks.spawn("smtp connection", async move {
                let _place = place;
                tokio::select! {
                    () = token.cancelled() => {}
                    ended = server.converse(stream) => if let Err(error) = ended {
                        tracing::debug!(error = %Chain(&error), "smtp connection broke");
                    },
                }
            });
        }
    }

    async fn converse(&self, stream: TcpStream) -> io::Result<()> {
        let mut conversation =
            Conversation { server: self, stream: BufStream::new(stream), begun: None, mistakes: 0 };
        conversation.say("220 onsale mail catcher").await?;
        while conversation.turn().await? == Next::Go {}
        conversation.stream.shutdown().await
    }
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    Stop,
}

/// One client.
struct Conversation<'a> {
    server: &'a Server,
    stream: BufStream<TcpStream>,
    /// The mail begun with MAIL FROM.
    begun: Option<Envelope>,
    mistakes: u32,
}

impl Conversation<'_> {
    /// Hears one command and answers it.
    async fn turn(&mut self) -> io::Result<Next> {
        let limits = self.server.limits;
        let heard = timeout(limits.command_timeout, read_line(&mut self.stream, COMMAND_BYTES_MAX)).await;
        let line = match heard {
            Ok(line) => line?,
            Err(_) => {
                self.say("421 you are too slow").await?;
                return Ok(Next::Stop);
            }
        };
        let command = match line {
            Line::Read(line) => Command::parse(&line),
            Line::TooLong => return self.mistake("500 the line is too long").await,
            Line::End => return Ok(Next::Stop),
        };
        match command {
            Command::Hello { is_extended } => self.hello(is_extended).await,
            Command::Mail { from, size } => self.begin(from, size).await,
            Command::Recipient { to } => self.address(to).await,
            Command::Data => self.take_mail().await,
            Command::Reset => {
                self.begun = None;
                self.good("250 forgotten").await
            }
            Command::Noop => self.good("250 fine").await,
            Command::Verify => self.good("252 send it and see").await,
            Command::Quit => {
                self.say("221 goodbye").await?;
                Ok(Next::Stop)
            }
            Command::Malformed(why) => self.mistake(&format!("501 {why}")).await,
            Command::Unknown => self.mistake("500 no such command").await,
        }
    }

    async fn hello(&mut self, is_extended: bool) -> io::Result<Next> {
        self.begun = None;
        if !is_extended {
            return self.good("250 hello").await;
        }
        let size = self.server.limits.mail_bytes_max;
        self.good(&format!("250-hello\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250 SIZE {size}"))
            .await
    }

    async fn begin(&mut self, from: String, size: Option<usize>) -> io::Result<Next> {
        if self.begun.is_some() {
            return self.mistake("503 one mail at a time").await;
        }
        if size.is_some_and(|size| size > self.server.limits.mail_bytes_max) {
            return self.good("552 the mail is too large").await;
        }
        if self.server.switchboard.takes_reject() {
            return self.good("451 told to refuse this mail").await;
        }
        self.begun = Some(Envelope { from, to: Vec::new() });
        self.good("250 go on").await
    }

    async fn address(&mut self, to: String) -> io::Result<Next> {
        let answer = match &mut self.begun {
            None => return self.mistake("503 first say who sends").await,
            Some(envelope) if envelope.to.len() >= RECIPIENTS_MAX => "452 too many recipients",
            Some(envelope) => {
                envelope.to.push(to);
                "250 go on"
            }
        };
        self.good(answer).await
    }

    async fn take_mail(&mut self) -> io::Result<Next> {
        let Some(envelope) = self.begun.take_if(|envelope| !envelope.to.is_empty()) else {
            return self.mistake("503 first say who gets it").await;
        };
        self.say("354 end with a lone dot").await?;
        let limits = self.server.limits;
        let data = timeout(limits.data_timeout, read_data(&mut self.stream, limits.mail_bytes_max)).await;
        let mail = match data {
            Ok(data) => match data? {
                Data::Whole(mail) => mail,
                Data::TooLarge => return self.good("552 the mail is too large").await,
                Data::Cut => return Ok(Next::Stop),
            },
            Err(_) => {
                self.say("421 you are too slow").await?;
                return Ok(Next::Stop);
            }
        };
        let kept = self.server.mailbox.keep(envelope, &mail).await;
        if self.server.switchboard.takes_close_after_data() {
            return Ok(Next::Stop);
        }
        match kept {
            Ok(id) => self.good(&format!("250 kept as {id}")).await,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "failed to keep a mail");
                self.good("451 the mail could not be kept").await
            }
        }
    }

    async fn good(&mut self, answer: &str) -> io::Result<Next> {
        self.say(answer).await?;
        Ok(Next::Go)
    }

    async fn mistake(&mut self, answer: &str) -> io::Result<Next> {
        self.mistakes += 1;
        if self.mistakes >= MISTAKES_MAX {
            self.say("421 too many mistakes").await?;
            return Ok(Next::Stop);
        }
        self.good(answer).await
    }

    /// Sends an answer; a client that does not read it is as slow as one that does not speak.
    async fn say(&mut self, answer: &str) -> io::Result<()> {
        let said = async {
            self.stream.write_all(answer.as_bytes()).await?;
            self.stream.write_all(b"\r\n").await?;
            self.stream.flush().await
        };
        let bounded = timeout(self.server.limits.command_timeout, said).await;
        bounded.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}
