//! Mail by SMTP: pooled connections, TLS where the address asks for it, a bound on every wait.

use std::{error::Error as _, sync::Arc, time::Duration};

use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor,
    message::{
        Attachment, Mailbox, MultiPart, SinglePart,
        header::{ContentType, ContentTypeErr},
    },
    transport::smtp::{PoolConfig, extension::ClientId},
};
use onsale_kit::error::Chain;
use onsale_types::Clock;

use super::{Mailer, Outgoing, SendError};
use crate::{config::MailConfig, domain::mail::Mail};

/// An answer of the server is cut here: it is for a person.
const ERROR_CHARS_MAX: usize = 500;
/// An unused connection is closed after this; servers close them soon after.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Whether `text` is the address of a mail server.
#[must_use]
pub fn is_url(text: &str) -> bool {
    AsyncSmtpTransport::<Tokio1Executor>::from_url(text).is_ok()
}

/// Whether `text` can be a sender, with or without a name.
#[must_use]
pub fn is_mailbox(text: &str) -> bool {
    text.parse::<Mailbox>().is_ok()
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The server's address. Not quoted: it may have a password in it.
    #[error("mail.smtp_url is not the address of a mail server")]
    Url,
    /// A sender.
    #[error("{key} is not an email address")]
    Mailbox {
        /// Which key.
        key: &'static str,
    },
}

/// A mail server.
pub struct Smtp {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    send_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Smtp {
    /// A server with at most `connections_max` connections; none is opened yet.
    pub fn new(
        config: &MailConfig,
        connections_max: usize,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, SetupError> {
        let mailbox =
            |key, text: &str| text.parse::<Mailbox>().map_err(|_unprintable| SetupError::Mailbox { key });
        let from = mailbox("mail.from", &config.from)?;
        let reply_to = match config.reply_to.as_str() {
            "" => None,
            text => Some(mailbox("mail.reply_to", text)?),
        };
        let pool = PoolConfig::new()
            .max_size(u32::try_from(connections_max).unwrap_or(u32::MAX))
            .idle_timeout(IDLE_MAX);
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(config.smtp_url.expose())
            .map_err(|_unprintable| SetupError::Url)?
            // As what we greet: the domain we send from, not the name of a pod.
            .hello_name(ClientId::Domain(from.email.domain().to_owned()))
            .timeout(Some(config.command_timeout))
            .pool_config(pool)
            .build();
        Ok(Self { transport, from, reply_to, send_timeout: config.send_timeout, clock })
    }

    fn message(&self, outgoing: &Outgoing) -> Result<Message, SendError> {
        let hopeless = |what: &str| SendError { message: what.to_owned(), is_hopeless: true };
        let to: Address =
            outgoing.to.as_str().parse().map_err(|_| hopeless("the address cannot be mailed to"))?;
        let message_id = format!("<{}@{}>", outgoing.message_key, self.from.email.domain());
        let mut message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(&outgoing.mail.subject)
            .message_id(Some(message_id));
        if let Some(reply_to) = &self.reply_to {
            message = message.reply_to(reply_to.clone());
        }
        if let Some(now) = self.clock.now().to_system_time() {
            message = message.date(now);
        }
        let body = body(&outgoing.mail).map_err(|_| hopeless("the mail's pictures cannot be put in"))?;
        message.multipart(body).map_err(|_| hopeless("the mail cannot be put together"))
    }
}

/// The text, and the HTML together with the pictures it shows.
fn body(mail: &Mail) -> Result<MultiPart, ContentTypeErr> {
    let text = SinglePart::plain(mail.text.clone());
    let html = SinglePart::html(mail.html.clone());
    let both = MultiPart::alternative().singlepart(text);
    if mail.pictures.is_empty() {
        return Ok(both.singlepart(html));
    }
    let mut related = MultiPart::related().singlepart(html);
    for picture in &mail.pictures {
        let part = Attachment::new_inline_with_name(picture.content_id.clone(), picture.file_name.clone());
        related = related.singlepart(part.body(picture.png.clone(), ContentType::parse("image/png")?));
    }
    Ok(both.multipart(related))
}

#[tonic::async_trait]
impl Mailer for Smtp {
    fn name(&self) -> &'static str {
        "smtp"
    }

    async fn send(&self, outgoing: &Outgoing) -> Result<Option<String>, SendError> {
        let message = self.message(outgoing)?;
        let sent = tokio::time::timeout(self.send_timeout, self.transport.send(message)).await;
        let failed = |message: String| SendError { message, is_hopeless: false };
        match sent {
            Ok(Ok(answer)) => Ok(answer.first_line().map(|line| sayable(line, outgoing))),
            Ok(Err(error)) => {
                let cause = error.source().map(|cause| format!(": {}", Chain(cause))).unwrap_or_default();
                Err(failed(sayable(&format!("{}{cause}", kind(&error)), outgoing)))
            }
            Err(_) => Err(failed(format!("the mail server did not finish in {:?}", self.send_timeout))),
        }
    }
}

fn kind(error: &lettre::transport::smtp::Error) -> String {
    match error.status() {
        Some(code) => format!("the mail server answered {code}"),
        None if error.is_timeout() => "the mail server did not answer in time".to_owned(),
        None => "the mail server could not be spoken to".to_owned(),
    }
}

/// What a server said, short and without the recipient's address, which servers like to repeat.
fn sayable(text: &str, outgoing: &Outgoing) -> String {
    let masked = text.replace(outgoing.to.as_str(), &outgoing.to.masked());
    masked.chars().filter(|it| !it.is_control()).take(ERROR_CHARS_MAX).collect()
}
