//! `onsale sandbox`: a part of the outside world as a process: a payment provider, a mail server. For development only.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use onsale_kit::{
    config::{LogFormat, TelemetryConfig},
    telemetry::Telemetry,
};
use onsale_sandbox::{mail, payments};
use onsale_testkit::stack::Interrupts;

/// What `onsale sandbox` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, clap::Subcommand)]
enum Part {
    /// A payment provider that takes no money.
    Payments(Payments),
    /// A mail server that delivers nothing and shows everything.
    Mail(Mail),
}

#[derive(Debug, clap::Args)]
struct Payments {
    /// Where it listens.
    #[arg(long, default_value = "127.0.0.1:7401")]
    listen: SocketAddr,
    /// Keeps what happened over a restart. Unset: it forgets.
    #[arg(long)]
    journal: Option<PathBuf>,
    /// Where webhooks go.
    #[arg(long, default_value = "http://127.0.0.1:8080/webhooks/sandbox")]
    webhook_url: String,
    /// Holds the key that merchants show.
    #[arg(long)]
    secret_key_file: PathBuf,
    /// Holds the secret that webhooks are signed with.
    #[arg(long)]
    webhook_secret_file: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Mail {
    /// Where mail is sent to.
    #[arg(long, default_value = "127.0.0.1:7425")]
    smtp: SocketAddr,
    /// Where mail is shown.
    #[arg(long, default_value = "127.0.0.1:7426")]
    http: SocketAddr,
    /// Where mail is kept.
    #[arg(long)]
    folder: PathBuf,
}

/// Runs the part until a signal.
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
