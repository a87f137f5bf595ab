//! `onsale sandbox` runs a stand-in for an external system: a payment provider or a mail server. For development only.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use onsale_kit::{
    config::{LogFormat, TelemetryConfig},
    telemetry::Telemetry,
};
use onsale_sandbox::{mail, payments};
use onsale_testkit::stack::Interrupts;

/// Arguments of `onsale sandbox`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// Runs a payment provider that moves no money
    Payments(Payments),
    /// Runs a mail server that delivers nothing and shows every mail on a page
    Mail(Mail),
}

#[derive(Debug, clap::Args)]
struct Payments {
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:7401")]
    listen: SocketAddr,
    /// File that keeps the state across restarts [default: state is lost]
    #[arg(long)]
    journal: Option<PathBuf>,
    /// URL to send webhooks to
    #[arg(long, default_value = "http://127.0.0.1:8080/webhooks/sandbox")]
    webhook_url: String,
    /// File with the API key that merchants present
    #[arg(long)]
    secret_key_file: PathBuf,
    /// File with the secret that signs webhooks
    #[arg(long)]
    webhook_secret_file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Mail {
    /// Address for SMTP
    #[arg(long, default_value = "127.0.0.1:7425")]
    smtp: SocketAddr,
    /// Address of the web page and JSON API
    #[arg(long, default_value = "127.0.0.1:7426")]
    http: SocketAddr,
    /// Folder in which mails are stored
    #[arg(long)]
    folder: PathBuf,
}

/// Runs the chosen stand-in until a signal.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let telemetry = TelemetryConfig {
        log_format: LogFormat::Human,
        log_filter: "info".to_owned(),
        otlp_endpoint: None,
        trace_sample_ratio: 0.0,
    };
    let _telemetry = Telemetry::init("sandbox", &telemetry)?;
    let mut interrupts = Interrupts::listen()?;
    match arguments.part {
        Part::Payments(arguments) => {
            let read = |path: &PathBuf| {
                let text = std::fs::read_to_string(path);
                let text = text.with_context(|| format!("failed to read {}", path.display()))?;
                anyhow::Ok(text.trim_end().to_owned())
            };
            let secrets = (read(&arguments.secret_key_file)?, read(&arguments.webhook_secret_file)?);
            let config = payments::Config {
                listen: arguments.listen,
                data_file: arguments.journal,
                webhook_url: Some(arguments.webhook_url),
                ..payments::Config::new(secrets.0, secrets.1)
            };
            let provider = payments::Provider::start(config).await?;
            interrupts.next().await;
            provider.stop().await;
        }
        Part::Mail(arguments) => {
            let config = mail::Config {
                smtp_listen: arguments.smtp,
                http_listen: arguments.http,
                ..mail::Config::new(arguments.folder)
            };
            let catcher = mail::Catcher::start(config).await?;
            interrupts.next().await;
            catcher.stop().await;
        }
    }
    Ok(())
}
