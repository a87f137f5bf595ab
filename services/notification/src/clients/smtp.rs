//! Mailer that uses SMTP, with pooled connections, TLS if the server's URL requires it, and a timeout for every step.

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

use super::{Mailer, OutgoingMail, SendError};
use crate::{config::MailConfig, domain::mail::Mail};

/// Maximum length of a stored server response.
const ERROR_CHARS_MAX: usize = 500;
/// Idle time after which a connection is closed. Shorter than the idle timeouts of mail servers.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// Does not quote the URL, which may contain a password.
    #[error("mail.smtp_url is not the URL of a mail server")]
    Url,
    #[error("{key} is not an email address")]
    Mailbox { key: &'static str },
}

/// Client of one mail server.
pub(crate) struct Smtp {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    reply_to: Option<Mailbox>,
    send_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Smtp {
    /// Creates a client with at most `connections_max` connections, which are opened on demand.
    pub(crate) fn new(
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
            // The HELO name is the sender's domain, not the host name of a pod.
            .hello_name(ClientId::Domain(from.email.domain().to_owned()))
            .timeout(Some(config.command_timeout))
            .pool_config(pool)
            .build();
        Ok(Self { transport, from, reply_to, send_timeout: config.send_timeout, clock })
    }

    fn message(&self, outgoing: &OutgoingMail) -> Result<Message, SendError> {
        let permanent = |what: &str| SendError { message: what.to_owned(), is_permanent: true };
        let to: Address =
            outgoing.to.as_str().parse().map_err(|_| permanent("the recipient's address is not valid"))?;
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
        let body = body(&outgoing.mail).map_err(|_| permanent("the pictures cannot be attached"))?;
        message.multipart(body).map_err(|_| permanent("the mail cannot be assembled"))
    }
}

/// Returns the plain text and, as its alternative, the HTML with its pictures.
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

    async fn send(&self, outgoing: &OutgoingMail) -> Result<Option<String>, SendError> {
        let message = self.message(outgoing)?;
        let sent = tokio::time::timeout(self.send_timeout, self.transport.send(message)).await;
        let failed = |message: String| SendError { message, is_permanent: false };
        match sent {
            Ok(Ok(answer)) => Ok(answer.first_line().map(|line| redacted(line, outgoing))),
            Ok(Err(error)) => {
                let cause = error.source().map(|cause| format!(": {}", Chain(cause))).unwrap_or_default();
                Err(failed(redacted(&format!("{}{cause}", describe(&error)), outgoing)))
            }
            Err(_) => Err(failed(format!("the mail was not sent within {:?}", self.send_timeout))),
        }
    }
}

fn describe(error: &lettre::transport::smtp::Error) -> String {
    match error.status() {
        Some(code) => format!("the mail server refused with {code}"),
        None if error.is_timeout() => "the mail server timed out".to_owned(),
        None => "the connection to the mail server failed".to_owned(),
    }
}

/// Returns at most 500 characters of a server's response. The recipient's address, which servers often repeat, is masked.
fn redacted(text: &str, outgoing: &OutgoingMail) -> String {
    let masked = text.replace(outgoing.to.as_str(), &outgoing.to.masked());
    masked.chars().filter(|it| !it.is_control()).take(ERROR_CHARS_MAX).collect()
}
